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
    bool kept;  /* tensors lie as panels of rows: whole ones, and tiled */
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
                         .kept = a->is_private,
                         .left = {.kind = kind},
                         .right = {.kind = kind, .right = true}};
}

static inline size_t heads_each(const struct attention *a) { return (size_t)a->H / (size_t)a->G; }

/* A panel of queries, or the first of some, of a head of a row. */
struct task {
    size_t b, h, first;
};

/* Elements before one of a tensor of so many columns, of which the row is a panel's first and the
 * column a head's; from that row to the next; and from 32 of its columns to the next ones. */
static inline size_t place_of(const struct plan *p, size_t row, size_t column, size_t columns)
{
    return row * columns + column * (p->kept ? PANEL : 1);
}
static inline size_t row_stride(const struct plan *p, size_t columns)
{
    return p->kept ? PANEL : columns;
}
static inline size_t width_stride(const struct plan *p) { return p->kept ? SUMS : PANEL; }
/* From a head's first element to its k-th, in one row. */
static inline size_t along_head(const struct plan *p, size_t k)
{
    return k / PANEL * width_stride(p) + k % PANEL;
}

static inline size_t out_columns(const struct plan *p) { return (size_t)p->a->H * (size_t)p->a->K; }

/* Where queries of a head of a row begin; and the same of out and dout; and of keys or values,
 * which in a private tensor begin at a column. */
static inline size_t query_at(const struct plan *p, size_t b, size_t h, size_t t)
{
    return place_of(p, b * (size_t)p->a->T + t, h * (size_t)p->a->K, p->a->q_stride);
}
static inline size_t out_at(const struct plan *p, size_t b, size_t h, size_t t)
{
    return place_of(p, b * (size_t)p->a->T + t, h * (size_t)p->a->K, out_columns(p));
}
static inline size_t key_at(const struct plan *p, size_t b, size_t g, size_t column)
{
    const struct attention *a = p->a;
    size_t first = g * (size_t)a->K + (a->is_private ? column : 0);
    return place_of(p, b * (size_t)a->S, first, a->kv_stride);
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

/* Rows [count][K] at x + at, of so many columns, as lines; across: as K lines of `count`. */
static inline struct lines rows(const struct plan *p, const void *x, size_t at, size_t columns,
                                size_t count, bool across)
{
    const struct attention *a = p->a;
    struct lines l = {(const char *)x + at * dtype_bytes(a->dtype),
                      a->dtype,
                      count,
                      (size_t)a->K,
                      columns,
                      across,
                      p->kept};
    if (across) l.size = (size_t)a->K, l.K = count;
    return l;
}

/* Up to 32 rows [count][K] of bf16: elements from one to the next, and from 32 to the next 32. */
struct attention_rows {
    const bf16 *x;
    size_t stride, width, count, K, widths;
};

/* Of rows of bf16, of so many columns, a panel from row `skip`. */
static inline struct attention_rows rows_of(const struct plan *p, const void *x, size_t at,
                                            size_t columns, size_t count, size_t skip)
{
    return (struct attention_rows){(const bf16 *)x + at + skip * columns,
                                   row_stride(p, columns),
                                   width_stride(p),
                                   least(PANEL, count - skip),
                                   (size_t)p->a->K,
                                   p->widths};
}

/* `count` rows of a head's K elements, from x + at on, to be asked for ahead: those of a panel that
 * is kept lie in one run. */
static inline struct ahead ahead_of(const struct plan *p, const void *x, size_t at, size_t columns,
                                    size_t count)
{
    size_t each = dtype_bytes(p->a->dtype), K = (size_t)p->a->K;
    return (struct ahead){.x = (const char *)x + at * each,
                          .stride = (p->kept ? K : columns) * each,
                          .bytes = K * each,
                          .rows = count,
                          .skip = p->kept ? PANEL * (columns - K) * each : 0};
}
