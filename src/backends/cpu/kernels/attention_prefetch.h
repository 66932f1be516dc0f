/* attention_prefetch.h -- software prefetch of rows, a few at a time between matrix multiplies.
 * Rows of one head are short and far apart, so the hardware prefetcher misses them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

struct attention_prefetch {
    const char *x;
    size_t stride, bytes, rows; /* from a row to the next; bytes of a row; rows left */
    size_t panel_skip; /* added after each 32 rows; requires that `rows` is a multiple of 32 */
};

static inline void attention_prefetch_rows(struct attention_prefetch *p, size_t rows)
{
    enum { CACHE_LINE = 64, TO_L2 = 2, PANEL_ROWS = 32 };
    for (; rows && p->rows; rows--) {
        for (size_t at = 0; at < p->bytes; at += CACHE_LINE)
            __builtin_prefetch(p->x + at, 0, TO_L2);
        p->x += p->stride;
        if (--p->rows % PANEL_ROWS == 0) p->x += p->panel_skip;
    }
}
