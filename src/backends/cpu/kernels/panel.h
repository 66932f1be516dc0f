/* panel.h -- micro-panels: 32 rows of a matrix A[M, K], or 32 columns of B[K, N], packed in the
 * order in which the GEMM micro-kernel reads them.  MR = NR = 32.
 *
 * A micro-panel is a sequence of k-steps of 32 k each:
 *   bf16, rows      [2][16 rows][32 k]: two AMX tiles of the left operand
 *   bf16, columns   [2][16 k/2][16 columns][2 k]: two AMX tiles of the right operand (VNNI layout)
 *   f32, both       [32 k][32]
 * Rows, columns and k past the end of the matrix are zero.
 * Sources  Intel's manual, TDPBF16PS; Goto and van de Geijn 2008, section 4; BLIS. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/kernels.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PANEL = 32,                        /* MR and NR: rows or columns of a panel; k of a k-step */
    MICRO_TILE = PANEL * PANEL,        /* elements of the 32 x 32 product of two panels */
    MICRO_TILE_LOWER = MICRO_TILE / 2, /* offset of its lower half */
    KSTEP_BYTES = MICRO_TILE * sizeof(bf16), /* of a bf16 k-step */
    DECODE_MAX_ROWS = 2 * PANEL /* so few rows are never stored in the panel layout: linear_decode
                                   multiplies them */
};

enum panel_kind { PANEL_BF16, PANEL_F32 };

static inline size_t size_min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t panel_count(size_t n) { return (n + PANEL - 1) / PANEL; }

/* Bytes of one k-step of a panel. */
static inline size_t panel_step_bytes(enum panel_kind kind)
{
    return PANEL * PANEL * (kind == PANEL_BF16 ? 2 : 4);
}

/* A GEMM operand: mn_count vectors (rows of A, columns of B) of K elements each. mn_major: element
 * k of vector i is x[k * stride + i], else x[i * stride + k] (K-major). paneled: the matrix with
 * rows of `stride` elements is stored in the panel layout below. bf16 panels need bf16 elements. */
struct operand {
    const void *x;
    enum dtype dtype;
    size_t mn_count, K, stride;
    bool mn_major, paneled;
};

/* Whether a tensor, if it is packed (ops.h), is stored in the panel layout: its bf16 row panels,
 * one after the other.  So it is where GEMMs of this ISA read those without packing and both dims
 * are multiples of a panel, unless there are only DECODE_MAX_ROWS rows. */
bool KERNEL(panel_layout_used)(bool is_packed, enum dtype dtype, int rows, int columns);

/* Offset of an element of a matrix in the panel layout, or stored by rows. */
static inline size_t panel_offset(bool paneled, size_t row, size_t column, size_t columns)
{
    if (!paneled) return row * columns + column;
    return row / PANEL * PANEL * columns + column / PANEL * MICRO_TILE + row % PANEL * PANEL +
           column % PANEL;
}

/* Elements [begin, end) along K of each vector. */
static inline struct operand operand_k_range(struct operand o, size_t begin, size_t end)
{
    size_t skip = begin * (o.mn_major ? o.stride : o.paneled ? PANEL : 1);
    o.x = (const char *)o.x + skip * dtype_bytes(o.dtype), o.K = end - begin;
    return o;
}

/* right: columns of B in VNNI layout. stream: NT stores, for panels that outgrow the caches; they
 * must be 64-byte aligned, and need a vector_stream_fence before others read them. prefetch: read
 * f32 elements ahead, for operands that outgrow the caches. steps: distance between panels in
 * k-steps; 0: the length of the operand. */
struct panel_format {
    enum panel_kind kind;
    bool right, stream, prefetch;
    size_t steps;
};
/* Packs `count` panels, from panel `first` on, to `to`. */
void KERNEL(panel_pack)(const struct operand *o, struct panel_format format, size_t first,
                        size_t count, void *to);

/* A row panel: packed, or read in place from a K-major matrix.  Strides in bytes: from a row
 * to the next, from rows 0-15 to rows 16-31, from a k-step to the next.  next, next_bytes: what
 * PANEL_F32 prefetches to L2 meanwhile, at most as much as the panel; 0: nothing.  rows, columns:
 * the part of the micro-tile that PANEL_F32 must compute.  depth: the elements along K that it
 * multiplies, more than steps - 1 k-steps; those after them are padding. */
struct left_panel {
    const void *at;
    size_t row, half, step;
    const void *next;
    size_t next_bytes;
    size_t rows, columns, depth;
};
static inline struct left_panel left_panel_packed(enum panel_kind kind, const void *at)
{
    return (struct left_panel){.at = at,
                               .row = 64,
                               .half = 1024,
                               .step = panel_step_bytes(kind),
                               .rows = PANEL,
                               .columns = PANEL,
                               .depth = SIZE_MAX};
}

/* The micro-kernel: acc[32][32] (+)= left panel x right panel over `steps` k-steps.  PANEL_BF16 on
 * AMX: this thread must have configured the tiles (tiles_open). */
void KERNEL(panel_multiply)(enum panel_kind kind, size_t steps, struct left_panel left,
                            const void *right, float *acc, bool accumulate);

/* Transposes a 32 x 32 micro-tile in place. */
void KERNEL(panel_transpose)(float *acc);
/* Transposes a 16 x 16 tile, dense, in place. */
void KERNEL(tile_transpose)(float *tile);

/* The kind of panel with which bf16 GEMMs are fastest on this processor. */
enum panel_kind KERNEL(panel_kind)(void);
