/* unicode.h -- classes of code points and other marks, from a table made by tools/make_unicode.py.
 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum unicode_class { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE };

enum unicode_class unicode_class_of(uint32_t code);

/* As Hugging Face's tokenizers have them. */
enum unicode_mark {
    UNICODE_WORD = 4, /* a token that is a single word does not stand beside these */
    UNICODE_PUNCTUATION = 8,
    UNICODE_DIGIT = 16,
    UNICODE_NFC = 32, /* may differ, or act on what stands before it, in form C */
    UNICODE_NFD = 64, /* the same in form D */
};
bool unicode_is(uint32_t code, unsigned marks); /* one of them */

extern const unsigned char unicode_ascii[128]; /* the classes of the first characters */
/* unicode_next for a byte that is not ASCII. */
enum unicode_class unicode_next_wide(const unsigned char *bytes, size_t len, int *size);

/* The character at bytes[0..len), len > 0: its class, and its length in *size.  A byte that begins
 * no valid UTF-8 is a character of class OTHER of one byte. */
static inline enum unicode_class unicode_next(const unsigned char *bytes, size_t len, int *size)
{
    if (bytes[0] >= 0x80) return unicode_next_wide(bytes, len, size);
    *size = 1;
    return (enum unicode_class)unicode_ascii[bytes[0]];
}
/* The same, with the code point (the byte itself where it is invalid). */
uint32_t unicode_decode(const unsigned char *bytes, size_t len, int *size);
