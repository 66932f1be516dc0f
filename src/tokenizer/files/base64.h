/* base64.h -- base64 (RFC 4648): tokens in tiktoken and Tekken files, a charsmap in
 * tokenizer.json. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stddef.h>

/* Returns the number of bytes, or -1 if the text is not valid base64, padded, or exceeds
 * `capacity`. */
int base64_decode(const char *text, size_t len, unsigned char *out, size_t capacity);
/* Appends the bytes in base64, padded. */
void base64_encode(struct text *out, const unsigned char *bytes, size_t len);
