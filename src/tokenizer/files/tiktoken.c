// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/tiktoken.h"

#include "tokenizer/text/split.h"
#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <string.h>

static int base64_digit(unsigned char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Returns the number of bytes, or -1 if the text is not valid base64 or exceeds `capacity`. */
static int decode_base64(const char *text, size_t len, unsigned char *out, size_t capacity)
{
    size_t n = 0, data = len;
    while (data && len - data < 2 && text[data - 1] == '=') data--;
    if (len % 4 || data % 4 == 1) return -1;
    uint32_t bits = 0;
    for (size_t i = 0; i < data; i++) {
        int digit = base64_digit((unsigned char)text[i]);
        if (digit < 0) return -1;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 == 0) continue;
        if (n == capacity) return -1;
        out[n++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    return (int)n;
}

/* Adds Llama 3's special tokens: reserved ones with a number, and some with a name.  Later models
 * named four of the reserved ones: there both names map to the ID, and the later name is displayed.
 * (Later models also renumber the reserved ones; the numbers here are those of Llama 3.) */
static void add_specials(struct tokenizer *t, int32_t first)
{
    enum { COUNT = 256, NAMED = 11, UNNUMBERED = 5 };
    static const struct {
        const char *name;
        int reserved; /* its number as a reserved token in Llama 3, or -1 */
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
    for (int i = 0; i < COUNT; i++) {
        int reserved = i < NAMED ? named[i].reserved : i - UNNUMBERED;
        if (i < NAMED && named[i].name)
            special_tokens_add(&t->special_tokens, named[i].name, first + i);
        if (reserved < 0) continue;
        snprintf(name, sizeof name, "<|reserved_special_token_%d|>", reserved);
        special_tokens_add(&t->special_tokens, name, first + i);
    }
    t->bos = first;
    t->eos = first + 1;
    t->vocab_size = first + COUNT;
}

static bool is_lfs_pointer(const char *line, size_t len)
{
    static const char begin[] = "version https://git-lfs";
    return len >= sizeof begin - 1 && !memcmp(line, begin, sizeof begin - 1);
}

static enum status read_line(struct tokenizer *t, const char *line, size_t len, size_t number)
{
    enum { MAX_DIGITS = 8 };
    unsigned char bytes[1024];
    const char *space = memchr(line, ' ', len);
    size_t width = space ? (size_t)(space - line) : 0;
    int32_t rank = 0;
    int n = space ? decode_base64(line, width, bytes, sizeof bytes) : -1;
    const char *at = space ? space + 1 : line + len, *end = line + len;
    bool digits = at < end && end - at <= MAX_DIGITS;
    for (; digits && at < end; at++) {
        digits = *at >= '0' && *at <= '9';
        rank = rank * 10 + (*at - '0');
    }
    if ((n <= 0 || !digits) && number == 1)
        FAIL(DATA,
             "%s: not a tokenizer: expected a tokenizer.json, a SentencePiece model, or lines of "
             "\"base64 rank\" as in tiktoken files%s",
             t->path,
             is_lfs_pointer(line, len) ? "; this is a Git LFS pointer: run git lfs pull" : "");
    if (n <= 0 || !digits)
        FAIL(DATA, "%s:%zu: expected \"base64 rank\"; the file is truncated or corrupt", t->path,
             number);
    if (vocabulary_add(&t->vocabulary, bytes, (size_t)n, rank))
        FAIL(DATA, "%s:%zu: %s", t->path, number, status_message());
    return STATUS_OK;
}

/* Checks that the ranks have no gap, since the special IDs follow the last rank. */
static enum status check_complete(struct tokenizer *t)
{
    if (vocabulary_finish(&t->vocabulary)) FAIL(DATA, "%s: %s", t->path, status_message());
    for (int32_t id = 0; id < t->vocabulary.id_limit; id++)
        if (!vocabulary_token(&t->vocabulary, id))
            FAIL(DATA, "%s: no token has rank %d; the largest rank is %d", t->path, id,
                 t->vocabulary.id_limit - 1);
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
    vocabulary_add_all_splits(&t->vocabulary);
    t->format = FORMAT_TIKTOKEN;
    t->file_name = "tokenizer.model";
    t->split = split_llama3;
    t->ignore_merges = true;
    add_specials(t, t->vocabulary.id_limit);
    return STATUS_OK;
}
