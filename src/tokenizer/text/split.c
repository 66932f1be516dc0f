// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/split.h"

#include "tokenizer/text/unicode.h"

#include <stdbool.h>

const char split_llama3_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char split_qwen2_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char split_gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                                  "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* Text and how far a piece has come. */
struct cursor {
    const unsigned char *text;
    size_t len, at;
};

static enum unicode_class peek(const struct cursor *c, int *size)
{
    return unicode_next(c->text + c->at, c->len - c->at, size);
}

/* Steps over at most `most` characters of a class. */
static void skip(struct cursor *c, enum unicode_class kind, size_t most)
{
    int size;
    while (most-- && c->at < c->len && peek(c, &size) == kind) c->at += (size_t)size;
}

static bool is_break(unsigned char byte) { return byte == '\r' || byte == '\n'; }
static unsigned char lower(unsigned char byte)
{
    return byte >= 'A' && byte <= 'Z' ? (unsigned char)(byte + 32) : byte;
}

/* Length of 's 't 'm 'd 're 've 'll, else 0.  Without case, U+017F is an s, too. */
static size_t contraction(const unsigned char *text, size_t len, bool any_case)
{
    if (len < 2 || text[0] != '\'') return 0;
    if (any_case && len >= 3 && text[1] == 0xC5 && text[2] == 0xBF) return 3;
    unsigned char a = any_case ? lower(text[1]) : text[1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (len < 3) return 0;
    unsigned char b = any_case ? lower(text[2]) : text[2];
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* \s+(?!\S)|\s+ from the start of a run of white space: all of it at the end of the text, else all
 * but its last character, if that leaves any. */
static size_t spaces(struct cursor c)
{
    int size;
    size_t last = c.at;
    while (c.at < c.len && peek(&c, &size) == UNICODE_SPACE) last = c.at, c.at += (size_t)size;
    return c.at == c.len || last == 0 ? c.at : last;
}

/* Bytes up to the last line break of the run of white space at the start, 0: there is none. */
static size_t through_breaks(struct cursor c)
{
    int size;
    size_t end = 0;
    while (c.at < c.len && peek(&c, &size) == UNICODE_SPACE) {
        bool broken = is_break(c.text[c.at]);
        c.at += (size_t)size;
        if (broken) end = c.at;
    }
    return end;
}

/* A run of what is neither letter, number nor space, after the `lead` bytes before it. */
static size_t symbols(struct cursor c, size_t lead, bool breaks)
{
    c.at = lead;
    skip(&c, UNICODE_OTHER, SIZE_MAX);
    if (c.at == lead) return 0;
    while (breaks && c.at < c.len && is_break(c.text[c.at])) c.at++;
    return c.at;
}

static size_t split_modern(const unsigned char *text, size_t len, size_t most_digits)
{
    struct cursor c = {text, len, 0};
    int size, next_size;
    size_t short_form = contraction(text, len, true);
    if (short_form) return short_form;
    enum unicode_class kind = peek(&c, &size);
    if (kind == UNICODE_NUMBER) {
        skip(&c, UNICODE_NUMBER, most_digits);
        return c.at;
    }
    /* letters, after one character that is no letter, number or line break */
    if (kind == UNICODE_LETTER) {
        skip(&c, UNICODE_LETTER, SIZE_MAX);
        return c.at;
    }
    c.at = (size_t)size;
    if (!is_break(text[0]) && c.at < len && peek(&c, &next_size) == UNICODE_LETTER) {
        skip(&c, UNICODE_LETTER, SIZE_MAX);
        return c.at;
    }
    c.at = 0;
    if (kind == UNICODE_OTHER) return symbols(c, 0, true);
    if (text[0] == ' ' && symbols(c, 1, true)) return symbols(c, 1, true);
    size_t broken = through_breaks(c);
    return broken ? broken : spaces(c);
}

size_t split_llama3(const unsigned char *text, size_t len) { return split_modern(text, len, 3); }
size_t split_qwen2(const unsigned char *text, size_t len) { return split_modern(text, len, 1); }

size_t split_gpt2(const unsigned char *text, size_t len)
{
    struct cursor c = {text, len, 0};
    int size;
    size_t short_form = contraction(text, len, false);
    if (short_form) return short_form;
    size_t lead = text[0] == ' ' && len > 1;
    c.at = lead;
    enum unicode_class kind = peek(&c, &size);
    if (kind == UNICODE_SPACE) {
        c.at = 0;
        return spaces(c);
    }
    skip(&c, kind, SIZE_MAX);
    return c.at;
}
