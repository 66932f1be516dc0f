/* attention_ahead.h -- rows that are asked for a while before they are read or written: a few at a
 * time, beside products.  Heads' rows are short and far apart, so that the processor, left alone,
 * waits for each. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

struct attention_prefetch {
    const char *x;
    size_t stride, bytes, rows; /* from a row to the next, of a row, how many are left */
    size_t panel_skip;          /* more, after each 32 rows; only where they are all so many */
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
