// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/kinds.h"
#include "tokenizer/text/split.h"

#include <stdio.h>
#include <string.h>

static int digit_of(unsigned char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Bytes decoded, or -1. */
static int decode(const char *text, size_t len, unsigned char *out, size_t room)
{
    size_t n = 0, data = len;
    while (data && len - data < 2 && text[data - 1] == '=') data--;
    if (len % 4 || data % 4 == 1) return -1;
    uint32_t bits = 0;
    for (size_t i = 0; i < data; i++) {
        int digit = digit_of((unsigned char)text[i]);
        if (digit < 0) return -1;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 == 0) continue;
        if (n == room) return -1;
        out[n++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    return (int)n;
}

/* Llama 3's special tokens: reserved, save for those that have a name.  Later models gave names to
 * four that were reserved; there both names lead to the id, and the later one is shown.  (Later
 * models also count the reserved ones anew; a number here is that of Llama 3.) */
static void add_specials(struct tokenizer *t, int32_t first)
{
    enum { ALL = 256, NAMED = 11, BEFORE_NUMBERS = 5 };
    static const struct {
        const char *name;
        int reserved; /* its number while it was reserved, or -1 */
    } named[NAMED] = {
        {"<|begin_of_text|>", -1},
        {"<|end_of_text|>", -1},
        {NULL, 0},
        {NULL, 1},
        {"<|finetune_right_pad_id|>", 2},
        {"<|step_id|>", 3},
        {"<|start_header_id|>", -1},
        {"<|end_header_id|>", -1},
        {"<|eom_id|>", 4},
        {"<|eot_id|>", -1},
        {"<|python_tag|>", 5},
    };
    char name[64];
    for (int i = 0; i < ALL; i++) {
        int reserved = i < NAMED ? named[i].reserved : i - BEFORE_NUMBERS;
        if (i < NAMED && named[i].name) specials_add(&t->specials, named[i].name, first + i);
        if (reserved < 0) continue;
        snprintf(name, sizeof name, "<|reserved_special_token_%d|>", reserved);
        specials_add(&t->specials, name, first + i);
    }
    t->bos = first;
    t->eos = first + 1;
    t->vocab_size = first + ALL;
}

static bool is_pointer(const char *line, size_t len)
{
    static const char begin[] = "version https://git-lfs";
    return len >= sizeof begin - 1 && !memcmp(line, begin, sizeof begin - 1);
}

static enum status read_line(struct tokenizer *t, const char *line, size_t len, size_t number)
{
    enum { MOST_DIGITS = 8 };
    unsigned char bytes[1024];
    const char *space = memchr(line, ' ', len);
    size_t width = space ? (size_t)(space - line) : 0;
    int32_t rank = 0;
    int n = space ? decode(line, width, bytes, sizeof bytes) : -1;
    const char *at = space ? space + 1 : line + len, *end = line + len;
    bool digits = at < end && end - at <= MOST_DIGITS;
    for (; digits && at < end; at++) {
        digits = *at >= '0' && *at <= '9';
        rank = rank * 10 + (*at - '0');
    }
    if ((n <= 0 || !digits) && number == 1)
        FAIL(
            DATA,
            "%s: no tokenizer: it begins neither as a tokenizer.json nor as a SentencePiece model, "
            "and its first line is not \"base64 rank\" as tiktoken's are%s",
            t->path, is_pointer(line, len) ? "; it is a pointer of Git LFS to the file" : "");
    if (n <= 0 || !digits)
        FAIL(DATA, "%s:%zu: not \"base64 rank\"; the file is cut off or damaged", t->path, number);
    if (vocabulary_add(&t->vocabulary, bytes, (size_t)n, rank))
        FAIL(DATA, "%s:%zu: %s", t->path, number, status_message());
    return STATUS_OK;
}

/* Special ids begin where the ranks end, so there must be as many tokens as ranks. */
static enum status check_complete(struct tokenizer *t)
{
    if (vocabulary_finish(&t->vocabulary)) FAIL(DATA, "%s: %s", t->path, status_message());
    for (int32_t id = 0; id < t->vocabulary.most; id++)
        if (!vocabulary_token(&t->vocabulary, id))
            FAIL(DATA, "%s: no token has rank %d; the largest rank is %d", t->path, id,
                 t->vocabulary.most - 1);
    return STATUS_OK;
}

enum status tiktoken_read(struct tokenizer *t, const char *bytes, size_t len)
{
    size_t number = 0;
    for (const char *at = bytes, *end = bytes + len; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        size_t width = (size_t)(stop - at);
        if (width && at[width - 1] == '\r') width--;
        number++;
        if (width) TRY(read_line(t, at, width, number));
        at = stop + 1;
    }
    TRY(check_complete(t));
    vocabulary_add_cuts(&t->vocabulary);
    t->kind = "tiktoken";
    t->file_name = "tokenizer.model";
    t->split = split_llama3;
    t->whole_pieces = true;
    add_specials(t, t->vocabulary.most);
    return STATUS_OK;
}
