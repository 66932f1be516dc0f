/* base64.h -- decodes base64 (RFC 4648), in which tiktoken and Tekken files write tokens. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

/* Returns the number of bytes, or -1 if the text is not valid base64 or exceeds `capacity`.  The
 * padding may be missing. */
int base64_decode(const char *text, size_t len, unsigned char *out, size_t capacity);
