/* charsmap.h -- SentencePiece's precompiled_charsmap: strings and their normalized forms.
 *
 * Format   A u32 with the trie's size in bytes, the trie, then the normalized strings, each
 *          NUL-terminated.  The trie is a double array (Darts) of u32 units: bits 0-7 are the
 *          label, bit 8 marks the end of a key, bits 10-30 are an offset (times 256 if bit 9 is
 *          set).  In a unit with bit 31, the other bits are a value: an offset into the strings.
 * Memory   A charsmap owns a copy of the blob. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct charsmap {
    uint32_t *units; /* NULL: maps nothing */
    size_t num_units;
    char *strings; /* ends in a NUL */
    size_t strings_bytes;
};

/* DATA: the blob is malformed. */
enum status charsmap_init(struct charsmap *c, const void *blob, size_t len);
void charsmap_release(struct charsmap *c);

/* Returns the normalized form of the longest mapped string that is a prefix of `bytes`, and that
 * string's length in *len; NULL if no prefix is mapped. */
const char *charsmap_find(const struct charsmap *c, const unsigned char *bytes, size_t left,
                          size_t *len);
/* The same for the shortest prefix, which is what Hugging Face's Precompiled looks for. */
const char *charsmap_find_shortest(const struct charsmap *c, const unsigned char *bytes,
                                   size_t left);
