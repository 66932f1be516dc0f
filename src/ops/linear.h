/* linear.h -- y = x w^T and its two gradients.
 *
 * Axes     N tokens, D width in, F width out; the last axis is contiguous.
 * Memory   The caller owns every buffer; outputs do not overlap inputs.
 * Order    Accumulators are f32 and are rounded once.  With `accumulate` the old output, or add_NF
 *          in forward, is added in f32 before rounding: so a residual connection is
 *          y = add + x w^T.
 * FP8      x, w and dy may be results of `quantize` (float8.h), dy in E5M2 and the others in E4M3,
 *          for any dtype of the output.  The accumulators are then multiplied in f32 by both
 *          inverse scales, before the rest of the epilogue.
 * Ranks    Local. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>

struct float8_scale;

struct linear {
    int N, D, F;
    enum dtype dtype;        /* of x, w, y, dx, dy; dw is always f32 */
    bool accumulate;         /* add to the output instead of replacing it */
    bool float8;             /* operands are quantized, and have scales */
    bool x_packed, y_packed; /* x and dx, y and dy are packed (ops.h) */
};
/* The dtype of the operands in memory. */
static inline enum dtype linear_operand(const struct linear *a)
{
    return a->float8 ? BF16 : a->dtype;
}
struct linear_fwd {
    const void *x_ND, *w_FD;
    void *y_NF;
    const struct float8_scale *x_scale, *w_scale; /* FP8 only */
    const void *add_NF;                           /* with `accumulate`; NULL: y_NF */
};
struct linear_bwd_input {
    const void *dy_NF, *w_FD;
    void *dx_ND;
    const struct float8_scale *dy_scale, *w_scale;
};
struct linear_bwd_weight {
    const void *dy_NF, *x_ND;
    float *dw_FD;
    const struct float8_scale *dy_scale, *x_scale;
};

static inline const void *linear_added(const struct linear_fwd *io)
{
    return io->add_NF ? io->add_NF : io->y_NF;
}

/* y = x w^T (+ add).  SHAPE: a size below 1. */
enum status linear_forward(const struct ops *, const struct linear *, const struct linear_fwd *,
                           struct queue *);
/* dx = dy w, or dx += dy w with `accumulate`.  SHAPE: a size below 1. */
enum status linear_backward_input(const struct ops *, const struct linear *,
                                  const struct linear_bwd_input *, struct queue *);
/* dw = dy^T x, or dw += dy^T x with `accumulate`.  SHAPE: a size below 1. */
enum status linear_backward_weight(const struct ops *, const struct linear *,
                                   const struct linear_bwd_weight *, struct queue *);
