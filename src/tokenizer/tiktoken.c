// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/kinds.h"
#include "tokenizer/split.h"

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

/* Names as Llama 3.1 has them; the rest is reserved and numbered. */
static void add_specials(struct tokenizer *t, int32_t first)
{
    static const char *const names[] = {"<|begin_of_text|>",
                                        "<|end_of_text|>",
                                        "<|reserved_special_token_0|>",
                                        "<|reserved_special_token_1|>",
                                        "<|finetune_right_pad_id|>",
                                        "<|step_id|>",
                                        "<|start_header_id|>",
                                        "<|end_header_id|>",
                                        "<|eom_id|>",
                                        "<|eot_id|>",
                                        "<|python_tag|>"};
    enum { NAMED = sizeof names / sizeof *names, ALL = 256 };
    /* what 3.0 called these places, and a mask token of its files asks for */
    static const struct {
        int place, reserved;
    } older[] = {{4, 2}, {5, 3}, {8, 4}};
    char name[64];
    for (int i = 0; i < ALL; i++) {
        /* both generations agree from place 10 on: reserved_k stands at k + 5 */
        snprintf(name, sizeof name, "<|reserved_special_token_%d|>", i - 5);
        tokenizer_add_special(t, i < NAMED && i != 10 ? names[i] : name, first + i);
    }
    tokenizer_add_special(t, names[10], first + 10);
    for (size_t i = 0; i < sizeof older / sizeof *older; i++) {
        snprintf(name, sizeof name, "<|reserved_special_token_%d|>", older[i].reserved);
        tokenizer_add_special(t, name, first + older[i].place);
    }
    t->bos = first;
    t->eos = first + 1;
    t->vocab_size = first + ALL;
}

static enum status read_line(struct tokenizer *t, const char *line, size_t len, size_t number)
{
    unsigned char bytes[1024];
    const char *space = memchr(line, ' ', len);
    size_t width = space ? (size_t)(space - line) : 0;
    int32_t rank = 0;
    int n = space ? decode(line, width, bytes, sizeof bytes) : -1;
    bool digits = space && space + 1 < line + len && line + len - space <= 10;
    for (const char *at = space + 1; digits && at < line + len; at++) {
        digits = *at >= '0' && *at <= '9';
        rank = rank * 10 + (*at - '0');
    }
    if (n <= 0 || !digits) FAIL(DATA, "%s:%zu: not \"base64 rank\"", t->path, number);
    TRY(vocabulary_add(&t->vocabulary, bytes, (size_t)n, rank));
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
    TRY(vocabulary_finish(&t->vocabulary));
    vocabulary_add_cuts(&t->vocabulary);
    t->kind = "tiktoken";
    t->file_name = "tokenizer.model";
    t->split = split_llama3;
    t->whole_pieces = true;
    add_specials(t, t->vocabulary.most);
    return STATUS_OK;
}
