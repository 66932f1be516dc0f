/* charsmap.h -- SentencePiece's precompiled_charsmap: strings and what normalizing makes of them.
 *
 * The blob is u32 bytes of a trie, the trie, and the strings it leads to, each with a NUL.  The
 * trie is a double array of u32: bits 0-7 a label, 8 "a string ends here", 10-30 an offset (times
 * 256 where bit 9 is set); of a unit with bit 31 the others are a value.
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

/* DATA: the blob is damaged. */
enum status charsmap_init(struct charsmap *c, const void *blob, size_t len);
void charsmap_release(struct charsmap *c);

/* What the longest mapped string at bytes[0] becomes, and that string's length; NULL: none. */
const char *charsmap_find(const struct charsmap *c, const unsigned char *bytes, size_t left,
                          size_t *len);
