/* matcher.h -- finds the longest of a set of strings that starts at a position in a text. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/vocabulary.h"

enum { MATCHER_MAX_BYTES = 1024 }; /* of one string */

struct matcher {
    struct vocabulary strings;
    uint16_t *lengths[256]; /* by first byte: lengths of those strings, descending, then 0 */
};

void matcher_release(struct matcher *m);
/* UNSUPPORTED: longer than MATCHER_MAX_BYTES; the caller prefixes the message with the token.
 * DATA: empty, or added twice. */
enum status matcher_add(struct matcher *m, const void *bytes, size_t len, int32_t id);

/* Returns the ID of the longest string that is a prefix of `bytes`, and its length; -1: none. */
int32_t matcher_find(const struct matcher *m, const unsigned char *bytes, size_t left, size_t *len);
/* Whether any string starts with this byte. */
static inline bool matcher_may_start(const struct matcher *m, unsigned char first)
{
    return m->lengths[first] != NULL;
}
static inline bool matcher_is_empty(const struct matcher *m) { return m->strings.count == 0; }
