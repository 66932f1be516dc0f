/* byte_alphabet.h -- GPT-2's byte-level alphabet (bytes_to_unicode): one character for each byte.
 *
 * Printable bytes of Latin-1 map to themselves, the other 68 to U+0100 and up. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { BYTE_ALPHABET_END = 0x144 }; /* one past the largest code point */

struct byte_alphabet {
    int16_t byte_of[BYTE_ALPHABET_END]; /* code point to byte; -1: not in the alphabet */
};
void byte_alphabet_init(struct byte_alphabet *a);
/* Decodes characters to bytes; clears `bytes` first.  Returns false if the text is empty or has a
 * character outside the alphabet. */
bool byte_alphabet_decode(const struct byte_alphabet *a, const char *text, size_t len,
                          struct text *bytes);

/* Appends the characters for the bytes. */
void byte_alphabet_encode(struct text *t, const unsigned char *bytes, size_t len);
