// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/split.h"

#include "tokenizer/text/unicode.h"

#include <stdbool.h>
#include <string.h>

const char split_llama3_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char split_cl100k_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s+\\z|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char split_qwen2_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char split_o200k_pattern[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char split_gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                                  "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* A text and the end of the piece so far. */
struct split_cursor {
    const unsigned char *text;
    size_t len, at;
};

static enum unicode_class peek(const struct split_cursor *c, int *size)
{
    return unicode_next(c->text + c->at, c->len - c->at, size);
}

/* Skips at most `max_count` characters of a class. */
static void skip_class(struct split_cursor *c, enum unicode_class kind, size_t max_count)
{
    int size;
    while (max_count-- && c->at < c->len && peek(c, &size) == kind) c->at += (size_t)size;
}

/* The number of ASCII letters at the start of 8 bytes, all of which are compared at once: a loop
 * over bytes would mispredict the end of most words. */
static size_t ascii_letters_of_8(const unsigned char *text)
{
    const uint64_t ones = 0x0101010101010101u, high = ones << 7;
    uint64_t word, lower, no_letter;
    memcpy(&word, text, sizeof word);
    lower = (word & ~high) | ones * 0x20;
    /* the high bit of each byte: below 'a', above 'z', not ASCII */
    no_letter = (~(lower + ones * (0x80 - 'a')) | (lower + ones * (0x7F - 'z')) | word) & high;
    return no_letter ? (size_t)__builtin_ctzll(no_letter) / 8 : sizeof word;
}

static void skip_letters(struct split_cursor *c)
{
    size_t n = 8;
    for (; n == 8 && c->len - c->at >= 8; c->at += n) n = ascii_letters_of_8(c->text + c->at);
    if (n == 8 || c->text[c->at] >= 0x80) skip_class(c, UNICODE_LETTER, SIZE_MAX);
}

static bool is_line_break(unsigned char byte) { return byte == '\r' || byte == '\n'; }
static unsigned char ascii_lower(unsigned char byte)
{
    return byte >= 'A' && byte <= 'Z' ? (unsigned char)(byte + 32) : byte;
}

/* Length of 's 't 'm 'd 're 've 'll at text[0], else 0.  U+017F (long s) folds to s. */
static size_t contraction_length(const unsigned char *text, size_t len, bool any_case)
{
    if (len < 2 || text[0] != '\'') return 0;
    if (any_case && len >= 3 && text[1] == 0xC5 && text[2] == 0xBF) return 3;
    unsigned char a = any_case ? ascii_lower(text[1]) : text[1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (len < 3) return 0;
    unsigned char b = any_case ? ascii_lower(text[2]) : text[2];
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* Matches \s+(?!\S)|\s+ at the start of a run of white space: the whole run at the end of the text,
 * otherwise all but its last character, if that leaves any. */
static size_t whitespace_length(struct split_cursor c)
{
    int size;
    size_t last = c.at;
    while (c.at < c.len && peek(&c, &size) == UNICODE_SPACE) last = c.at, c.at += (size_t)size;
    return c.at == c.len || last == 0 ? c.at : last;
}

/* Length of the leading run of white space through its last line break; 0 if it has none. */
static size_t length_through_last_break(struct split_cursor c)
{
    int size;
    size_t end = 0;
    while (c.at < c.len && peek(&c, &size) == UNICODE_SPACE) {
        bool breaks = is_line_break(c.text[c.at]);
        c.at += (size_t)size;
        if (breaks) end = c.at;
    }
    return end;
}

/* Length of `lead` bytes and the run after them of characters that are neither letters, numbers nor
 * spaces; 0 if that run is empty. */
static size_t symbol_run_length(struct split_cursor c, size_t lead, bool breaks)
{
    c.at = lead;
    skip_class(&c, UNICODE_OTHER, SIZE_MAX);
    if (c.at == lead) return 0;
    while (breaks && c.at < c.len && is_line_break(c.text[c.at])) c.at++;
    return c.at;
}

/* Variants of one pattern. */
struct split_variant {
    size_t max_digits; /* in a piece */
    bool takes_end;    /* white space that ends the text is one piece */
};

static size_t split_variant(const unsigned char *text, size_t len, struct split_variant v)
{
    struct split_cursor c = {text, len, 0};
    int size, next_size;
    size_t contraction = contraction_length(text, len, true);
    if (contraction) return contraction;
    enum unicode_class kind = peek(&c, &size);
    if (kind == UNICODE_NUMBER) {
        skip_class(&c, UNICODE_NUMBER, v.max_digits);
        return c.at;
    }
    /* letters, optionally preceded by one character that is not a letter, number or line break */
    if (kind == UNICODE_LETTER) {
        skip_letters(&c);
        return c.at;
    }
    c.at = (size_t)size;
    if (!is_line_break(text[0]) && c.at < len && peek(&c, &next_size) == UNICODE_LETTER) {
        skip_letters(&c);
        return c.at;
    }
    c.at = 0;
    if (kind == UNICODE_OTHER) return symbol_run_length(c, 0, true);
    size_t symbols = text[0] == ' ' ? symbol_run_length(c, 1, true) : 0;
    if (symbols) return symbols;
    if (v.takes_end) {
        struct split_cursor end = c;
        skip_class(&end, UNICODE_SPACE, SIZE_MAX);
        if (end.at == len) return len;
    }
    size_t through_break = length_through_last_break(c);
    return through_break ? through_break : whitespace_length(c);
}

size_t split_llama3(const unsigned char *text, size_t len)
{
    return split_variant(text, len, (struct split_variant){.max_digits = 3});
}

static bool is_ascii_letter(unsigned char byte)
{
    return ascii_lower(byte) >= 'a' && ascii_lower(byte) <= 'z';
}

size_t split_llama3_boundary(const unsigned char *text, size_t len, size_t at)
{
    int size;
    for (; at < len; at++) {
        /* No piece has a space after a letter, nor anything but white space after a line break. */
        if (is_ascii_letter(text[at - 1]) && (text[at] == ' ' || is_line_break(text[at]))) break;
        if (text[at - 1] == '\n' && unicode_next(text + at, len - at, &size) != UNICODE_SPACE)
            break;
    }
    return at;
}

size_t split_cl100k(const unsigned char *text, size_t len)
{
    return split_variant(text, len, (struct split_variant){.max_digits = 3, .takes_end = true});
}

size_t split_qwen2(const unsigned char *text, size_t len)
{
    return split_variant(text, len, (struct split_variant){.max_digits = 1});
}

size_t split_gpt2(const unsigned char *text, size_t len)
{
    struct split_cursor c = {text, len, 0};
    int size;
    size_t contraction = contraction_length(text, len, false);
    if (contraction) return contraction;
    size_t lead = text[0] == ' ' && len > 1;
    c.at = lead;
    enum unicode_class kind = peek(&c, &size);
    if (kind == UNICODE_SPACE) {
        c.at = 0;
        return whitespace_length(c);
    }
    if (kind == UNICODE_LETTER)
        skip_letters(&c);
    else
        skip_class(&c, kind, SIZE_MAX);
    return c.at;
}
