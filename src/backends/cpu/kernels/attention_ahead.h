/* attention_ahead.h -- rows that are asked for a while before they are read or written: a few at a
 * time, beside products.  Heads' rows are short and far apart, so that the processor, left alone,
 * waits for each. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

struct ahead {
    const char *x;
    size_t stride, bytes, rows; /* from a row to the next, of a row, how many are left */
    size_t skip;                /* more, after each 32 rows; only where they are all so many */
};

static inline void ahead_ask(struct ahead *a, size_t rows)
{
    enum { CACHE_LINE = 64, SECOND_CACHE = 2, TOGETHER = 32 };
    for (; rows && a->rows; rows--) {
        for (size_t at = 0; at < a->bytes; at += CACHE_LINE)
            __builtin_prefetch(a->x + at, 0, SECOND_CACHE);
        a->x += a->stride;
        if (--a->rows % TOGETHER == 0) a->x += a->skip;
    }
}
