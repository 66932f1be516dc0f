/* terminal_text.h -- text of unknown origin, such as a model's, on its way to stdout.
 *
 * A file or pipe gets the bytes unchanged.  A terminal gets characters only: control characters
 * except newline and tab are escaped as in escape.h, and U+FFFD stands for each byte that is not
 * UTF-8, so that text cannot move the cursor, change a title or type an answer. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

/* Appends what a terminal gets; returns the number of bytes used.  Unless they are the `last`, the
 * beginning of a character at the end waits for its other bytes. */
size_t terminal_text_add(struct text *out, const char *bytes, size_t len, bool last);
/* Writes to stdout in either way and flushes it; returns the number of bytes used. */
size_t terminal_text_write(const char *bytes, size_t len, bool last);
