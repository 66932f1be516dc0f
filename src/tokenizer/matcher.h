/* matcher.h -- which of a list of strings begins at a place of a text; the longest counts. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/vocabulary.h"

enum { MATCHER_LONGEST = 1024 }; /* bytes of a string */

struct matcher {
    struct vocabulary strings;
    uint16_t *lengths[256]; /* of the strings that begin with this byte: falling, then 0 */
};

void matcher_release(struct matcher *m);
/* UNSUPPORTED: longer than MATCHER_LONGEST.  DATA: empty, or there already. */
enum status matcher_add(struct matcher *m, const void *bytes, size_t len, int32_t id);

/* Id of the longest string at bytes[0], and its length; -1: none. */
int32_t matcher_find(const struct matcher *m, const unsigned char *bytes, size_t left, size_t *len);
static inline bool matcher_may(const struct matcher *m, unsigned char first)
{
    return m->lengths[first] != NULL;
}
static inline bool matcher_is_empty(const struct matcher *m) { return m->strings.count == 0; }
