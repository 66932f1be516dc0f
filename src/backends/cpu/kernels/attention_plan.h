/* attention_plan.h -- what forward and backward share: sizes in panels, and offsets of rows. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/attention_prefetch.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/tiles.h"
#include "ops/attention.h"

#include <string.h>

#if defined(TILES)
enum { TILED = 1 };
#else
enum { TILED = 0 };
#endif

enum { KEY_GROUP = 4 }; /* key panels per softmax update */

/* What follows from the sizes alone. */
struct attention_plan {
    const struct attention *a;
    enum panel_kind kind;
    size_t key_panels, query_panels, head_panels; /* along S, T and K */
    size_t step_bytes;                            /* of a k-step */
    struct panel_format left, right;
    bool tiled;   /* with AMX: attention_tiles_forward.h and attention_tiles_backward.h */
    bool paneled; /* tensors are in the panel layout; implies full panels, and tiled */
};

static inline struct attention_plan attention_plan_of(const struct attention *a)
{
    enum panel_kind kind = a->dtype == BF16 ? KERNEL(panel_kind)() : PANEL_F32;
    return (struct attention_plan){.a = a,
                                   .kind = kind,
                                   .key_panels = panel_count((size_t)a->S),
                                   .query_panels = panel_count((size_t)a->T),
                                   .head_panels = panel_count((size_t)a->K),
                                   .step_bytes = panel_step_bytes(kind),
                                   .tiled = TILED && kind == PANEL_BF16 && a->scale > 0,
                                   .paneled = a->is_packed,
                                   .left = {.kind = kind},
                                   .right = {.kind = kind, .right = true}};
}

static inline size_t heads_per_group(const struct attention *a)
{
    return (size_t)a->H / (size_t)a->G;
}

/* A panel of queries, or the first of a group, of a head of a row. */
struct attention_task {
    size_t b, h, first;
};

/* element_offset: offset of an element of a tensor with `columns` columns, whose row starts a panel
 * and whose column starts a head. row_stride: from that row to the next. head_panel_stride: from 32
 * columns to the next 32. */
static inline size_t element_offset(const struct attention_plan *p, size_t row, size_t column,
                                    size_t columns)
{
    return row * columns + column * (p->paneled ? PANEL : 1);
}
static inline size_t row_stride(const struct attention_plan *p, size_t columns)
{
    return p->paneled ? PANEL : columns;
}
static inline size_t head_panel_stride(const struct attention_plan *p)
{
    return p->paneled ? MICRO_TILE : PANEL;
}
/* From a head's first element to its k-th, in one row. */
static inline size_t offset_in_head(const struct attention_plan *p, size_t k)
{
    return k / PANEL * head_panel_stride(p) + k % PANEL;
}

static inline size_t out_columns(const struct attention_plan *p)
{
    return (size_t)p->a->H * (size_t)p->a->K;
}

/* Offsets of the first element of a head: in q; in out and dout; in k or v, which start at `column`
 * of a packed tensor. */
static inline size_t query_offset(const struct attention_plan *p, size_t b, size_t h, size_t t)
{
    return element_offset(p, b * (size_t)p->a->T + t, h * (size_t)p->a->K, p->a->q_stride);
}
static inline size_t out_offset(const struct attention_plan *p, size_t b, size_t h, size_t t)
{
    return element_offset(p, b * (size_t)p->a->T + t, h * (size_t)p->a->K, out_columns(p));
}
static inline size_t key_offset(const struct attention_plan *p, size_t b, size_t g, size_t column)
{
    const struct attention *a = p->a;
    size_t first = g * (size_t)a->K + (a->is_packed ? column : 0);
    return element_offset(p, b * (size_t)a->S, first, a->kv_stride);
}

static inline uint32_t bf16_rounded_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits + 0x7FFFu + (bits >> 16 & 1);
}

/* Packs two rows of a tile as the 32 words that a k-step of a right bf16 panel holds of them. */
static inline void store_pair(const float *low, const float *high, size_t pair, uint32_t *to)
{
    for (size_t half = 0; half < 2; half++)
        for (size_t i = 0; i < 16; i++)
            to[half * 256 + pair * 16 + i] = bf16_rounded_bits(low[half * 16 + i]) >> 16 |
                                             (bf16_rounded_bits(high[half * 16 + i]) & 0xFFFF0000u);
}

/* `count` rows of one head, K elements each; the first is at x + at, in a tensor with `columns`
 * columns. */
struct head_rows {
    const void *x;
    size_t at, columns, count;
};

/* The rows as a GEMM operand; transposed: as K vectors of `count` elements. */
static inline struct operand operand_of_rows(const struct attention_plan *p, struct head_rows r,
                                             bool transposed)
{
    const struct attention *a = p->a;
    size_t K = (size_t)a->K;
    return (struct operand){.x = (const char *)r.x + r.at * dtype_bytes(a->dtype),
                            .dtype = a->dtype,
                            .mn_count = transposed ? K : r.count,
                            .K = transposed ? r.count : K,
                            .stride = r.columns,
                            .mn_major = transposed,
                            .paneled = p->paneled};
}

/* Up to 32 bf16 rows [count][K]: elements from a row to the next, and from 32 columns to the next
 * 32. */
struct attention_rows {
    const bf16 *x;
    size_t stride, panel_stride, count, K, head_panels;
};

/* The panel of bf16 rows that starts at row `skip`. */
static inline struct attention_rows panel_of_rows(const struct attention_plan *p,
                                                  struct head_rows r, size_t skip)
{
    return (struct attention_rows){.x = (const bf16 *)r.x + r.at + skip * r.columns,
                                   .stride = row_stride(p, r.columns),
                                   .panel_stride = head_panel_stride(p),
                                   .count = size_min(PANEL, r.count - skip),
                                   .K = (size_t)p->a->K,
                                   .head_panels = p->head_panels};
}

/* A prefetch of the rows.  In the panel layout the rows of a panel are contiguous. */
static inline struct attention_prefetch prefetch_of(const struct attention_plan *p,
                                                    struct head_rows r)
{
    size_t bytes = dtype_bytes(p->a->dtype), K = (size_t)p->a->K;
    size_t skip = p->paneled ? PANEL * (r.columns - K) : 0;
    return (struct attention_prefetch){.x = (const char *)r.x + r.at * bytes,
                                       .stride = (p->paneled ? K : r.columns) * bytes,
                                       .bytes = K * bytes,
                                       .rows = r.count,
                                       .panel_skip = skip * bytes};
}
