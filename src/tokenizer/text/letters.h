/* letters.h -- GPT-2's alphabet: a letter for each byte.
 *
 * Printable bytes of Latin-1 stand for themselves, the others for U+0100 and on. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { LETTERS_END = 0x144 };

struct letters {
    int16_t byte_of[LETTERS_END]; /* code point to byte; -1: not of the alphabet */
};
void letters_init(struct letters *l);
/* Bytes of the letters, cleared first; false: nothing, or one that is not of the alphabet. */
bool letters_read(const struct letters *l, const char *text, size_t len, struct text *bytes);

/* Appends the letters of bytes; `quoted`: as they stand in a string of JSON. */
void letters_add(struct text *t, const unsigned char *bytes, size_t len, bool quoted);
