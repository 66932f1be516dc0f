/* panel.h -- panels: 32 rows of a matrix A[M, K], or 32 columns of B[K, N], as products read them.
 *
 * A panel is a row of steps, each of 32 along K:
 *   pairs, rows     [2][16 rows][32 k] bf16: two tiles as AMX takes them on the left
 *   pairs, columns  [2][16 k/2][16 columns][2 k] bf16: two tiles as AMX takes them on the right
 *   floats, both    [32 k][32] f32
 * What lies past the end of the matrix is zero.
 * Sources  Intel's manual, TDPBF16PS; the panels of Goto and van de Geijn 2008, section 4. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/kernels.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    PANEL = 32,                             /* rows or columns of a panel, and k of a step */
    MICRO_TILE = PANEL * PANEL,             /* numbers that two panels come to */
    MICRO_TILE_LOWER = MICRO_TILE / 2,      /* of them, before the lower half */
    KSTEP_BYTES = MICRO_TILE * sizeof(bf16) /* bytes of a step of pairs */
};

enum panel_kind { PANEL_BF16, PANEL_F32 };

static inline size_t size_min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t panel_count(size_t n) { return (n + PANEL - 1) / PANEL; }

/* Bytes of one step of a panel. */
static inline size_t panel_step_bytes(enum panel_kind kind)
{
    return PANEL * PANEL * (kind == PANEL_BF16 ? 2 : 4);
}

/* A matrix seen as `size` lines (rows of A, columns of B) of K elements each.  across: element k of
 * line i is x[k * stride + i], else x[i * stride + k].  Pairs are made of BF16 only.
 * paneled: the matrix whose rows are of `stride` lies as its own panels of rows, of pairs. */
struct operand {
    const void *x;
    enum dtype dtype;
    size_t mn_count, K, stride;
    bool mn_major, paneled;
};

/* Whether a tensor, if it is private (ops.h), lies as its panels of rows, of pairs: where products
 * of this set take those as they are, and it has whole ones. */
bool KERNEL(panel_layout_used)(bool is_private, enum dtype dtype, int rows, int columns);

/* Where an element of a matrix is, which is kept so, or lies row by row. */
static inline size_t panel_offset(bool paneled, size_t row, size_t column, size_t columns)
{
    if (!paneled) return row * columns + column;
    return row / PANEL * PANEL * columns + column / PANEL * MICRO_TILE + row % PANEL * PANEL +
           column % PANEL;
}

/* Elements [begin, end) of each line. */
static inline struct operand operand_k_range(struct operand o, size_t begin, size_t end)
{
    size_t skip = begin * (o.mn_major ? o.stride : o.paneled ? PANEL : 1);
    o.x = (const char *)o.x + skip * dtype_bytes(o.dtype), o.K = end - begin;
    return o;
}

/* right: columns of B.  stream: written past the caches, for much that is read later; such panels
 * lie on multiples of 64 bytes, and vector_stream_end comes before others read them.  steps: from
 * a panel to the next; 0: as many as the lines have. */
struct panel_format {
    enum panel_kind kind;
    bool right, stream;
    size_t steps;
};
/* Panels `first`, and count - 1 more, of the lines to `to`. */
void KERNEL(panel_pack)(const struct operand *o, struct panel_format format, size_t first,
                        size_t count, void *to);

/* Where a panel of rows lies: packed, or as pairs in a matrix whose lines do not run across.
 * Bytes from a row to the next, from the 16th row to the 17th's half, from a step to the next. */
struct left_panel {
    const void *at;
    size_t row, half, step;
};
static inline struct left_panel left_panel_packed(enum panel_kind kind, const void *at)
{
    return (struct left_panel){at, 64, 1024, panel_step_bytes(kind)};
}

/* sums[32][32] (+)= left panel x right panel, over `steps` steps.  For PAIRS this thread has opened
 * the tiles (tiles.h). */
void KERNEL(panel_multiply)(enum panel_kind kind, size_t steps, struct left_panel left,
                            const void *right, float *acc, bool accumulate);

/* Exchanges rows and columns of 32 x 32 sums. */
void KERNEL(panel_transpose)(float *acc);

/* Which panels products of bf16 are fastest with on this processor. */
enum panel_kind KERNEL(panel_kind)(void);
