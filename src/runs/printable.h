/* printable.h -- text of unknown origin made fit for a terminal or a table.
 *
 * NUL bytes, control characters, bytes that are not UTF-8 and characters that change the direction
 * of the text become "\x00" or "\u202e": they can neither move the cursor nor hide what is
 * written. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

/* Appends `len` bytes, of which none ends the text. */
void printable_add(struct text *out, const char *bytes, size_t len);
void printable_adds(struct text *out, const char *string);
/* The same as a heap string of at most `most` bytes, cut between characters and escapes. */
char *printable_string(const char *bytes, size_t len, size_t most);
/* Bytes of the character at `at`, which is printable UTF-8, and how many columns it takes: 0 to
 * 2. */
size_t printable_character(const char *at, int *columns);
/* Columns of a printable text. */
size_t printable_width(const char *string);
/* Appends the text cut or filled with spaces to exactly `width` columns; a cut ends in "~". */
void printable_fit(struct text *out, const char *string, size_t width);
