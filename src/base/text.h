/* text.h -- a growable byte string.
 *
 * Memory   `data` is owned and ends in a NUL that `len` does not count; { 0 } is an empty text,
 *          with data NULL.  Running out of memory ends the process (heap.h): texts are small.
 *          Large buffers belong in an arena, which returns STATUS_MEMORY. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/heap.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *data;
    size_t len, capacity;
};

void text_release(struct text *t);
void text_clear(struct text *t);                /* keeps the memory */
void text_reserve(struct text *t, size_t more); /* for `more` bytes and the NUL */
void text_add(struct text *t, const void *bytes, size_t len);
void text_adds(struct text *t, const char *string);
void text_add_utf8(struct text *t, uint32_t code); /* a code point below 2^21 */
/* Appends the low 1 to 8 bytes of a number, little-endian. */
void text_add_le(struct text *t, uint64_t value, int bytes);
void text_add_escaped(struct text *t, const char *string); /* its control characters (escape.h) */
void text_addf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_addv(struct text *t, const char *fmt, va_list args) __attribute__((format(printf, 2, 0)));

/* A heap copy without leading and trailing whitespace. */
char *text_trimmed(const char *string);

/* Length of the UTF-8 byte order mark (BOM) at the start: 3, or 0 without one. */
size_t text_bom_length(const void *text, size_t len);
/* Writes the 1 to 4 bytes of a code point below 2^21; returns how many. */
size_t text_encode_utf8(uint32_t code, char *bytes);
/* Writes the low 1 to 8 bytes of a number, little-endian. */
void text_encode_le(uint64_t value, int bytes, void *to);
/* Bytes of the UTF-8 character (RFC 3629) at `at`; 0 if it is invalid. */
size_t text_utf8_length(const unsigned char *at, const unsigned char *end);
bool text_is_utf8(const char *bytes, size_t len);

/* Whether the first `len` bytes of `word` are one of the words in "a|b|c". */
bool text_is_choice(const char *words, const char *word, size_t len);

/* Appends "a|b|c" as "a, b or c". */
void text_add_choices(struct text *t, const char *words);

/* Appends a word for a POSIX shell: in quotes if it has a special character. */
void text_add_shell(struct text *t, const char *word);
