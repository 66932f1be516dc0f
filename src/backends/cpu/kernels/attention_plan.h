/* attention_plan.h -- what forward and backward share: sizes in panels, and which rows. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/attention_ahead.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/tiles.h"
#include "ops/attention.h"

#include <string.h>

#if defined(TILES)
enum { TILED = 1 };
#else
enum { TILED = 0 };
#endif

enum { GROUP = 4 }; /* panels that are handled at once */

/* What follows from the sizes alone. */
struct plan {
    const struct attention *a;
    enum panel_kind kind;
    size_t keys, queries, widths; /* panels along S, T and K */
    size_t step;                  /* bytes */
    struct panel_form left, right;
    bool tiled; /* on tiles, by attention_pass.h and attention_back.h */
};

static inline struct plan plan_of(const struct attention *a)
{
    enum panel_kind kind = a->dtype == BF16 ? KERNEL(panel_kind)() : FLOATS;
    return (struct plan){.a = a,
                         .kind = kind,
                         .keys = panels_of((size_t)a->S),
                         .queries = panels_of((size_t)a->T),
                         .widths = panels_of((size_t)a->K),
                         .step = panel_step_bytes(kind),
                         .tiled = TILED && kind == PAIRS && a->scale > 0,
                         .left = {.kind = kind},
                         .right = {.kind = kind, .right = true}};
}

static inline size_t heads_each(const struct attention *a) { return (size_t)a->H / (size_t)a->G; }

/* A panel of queries, or the first of some, of a head of a row. */
struct task {
    size_t b, h, first;
};

/* Where a row of out and dout begins. */
static inline size_t out_at(const struct attention *a, size_t b, size_t h, size_t t)
{
    return ((b * (size_t)a->T + t) * (size_t)a->H + h) * (size_t)a->K;
}

static inline uint32_t rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits + 0x7FFFu + (bits >> 16 & 1);
}

/* Two rows of sums to the 32 words that a step of a right panel of pairs holds of them. */
static inline void put_pair(const float *low, const float *high, size_t pair, uint32_t *to)
{
    for (size_t half = 0; half < 2; half++)
        for (size_t i = 0; i < 16; i++)
            to[half * 256 + pair * 16 + i] =
                rounded(low[half * 16 + i]) >> 16 | (rounded(high[half * 16 + i]) & 0xFFFF0000u);
}

/* Rows [count][K] at x + at, `stride` apart, as lines; across: as K lines of `count`. */
static inline struct lines rows(const struct attention *a, const void *x, size_t at, size_t stride,
                                size_t count, bool across)
{
    struct lines l = {(const char *)x + at * dtype_bytes(a->dtype),
                      a->dtype,
                      count,
                      (size_t)a->K,
                      stride,
                      across,
                      false};
    if (across) l.size = (size_t)a->K, l.K = count;
    return l;
}

/* Up to 32 rows [count][K] of bf16, `stride` elements apart. */
struct attention_rows {
    const bf16 *x;
    size_t stride, count, K, widths;
};

/* Of such rows of bf16 a panel from row `skip`. */
static inline struct attention_rows rows_of(const struct plan *p, const void *x, size_t at,
                                            size_t stride, size_t count, size_t skip)
{
    const bf16 *from = (const bf16 *)x + at + skip * stride;
    return (struct attention_rows){from, stride, least(PANEL, count - skip), (size_t)p->a->K,
                                   p->widths};
}

/* `count` rows of a head's K elements, from x + at on, to be asked for ahead. */
static inline struct ahead ahead_of(const struct plan *p, const void *x, enum dtype dtype,
                                    size_t at, size_t stride, size_t count)
{
    size_t each = dtype_bytes(dtype);
    return (struct ahead){(const char *)x + at * each, stride * each, (size_t)p->a->K * each,
                          count};
}
