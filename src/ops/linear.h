/* linear.h -- y = x w^T and its two gradients.
 *
 * Axes     N tokens, D width in, F width out; the last axis is contiguous.
 * Memory   The caller owns every buffer; outputs do not overlap inputs.
 * Order    Products are summed in f32 (bf16 inputs) and rounded once.  With `accumulate` the old
 *          output, or forward add_NF, is added in f32 before that rounding: so the residual
 *          connection is y = add + x w^T.
 * float8   x, w and dy may be what `quantize` (float8.h) made, dy of E5M2 and the others of E4M3,
 *          whatever dtype the results have; then the sums are multiplied with the product of both
 *          inverse scales, in f32, before anything else is done with them.
 * Ranks    Local. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>

struct float8_scale;

struct linear {
    int N, D, F;
    enum dtype dtype;          /* of x, w, y, dx, dy; dw is always f32 */
    bool accumulate;           /* add to the output instead of replacing it */
    bool float8;               /* what is multiplied are rounded numbers, and their scales count */
    bool x_private, y_private; /* ops.h; and so are dx, dy */
};
/* Of what is multiplied. */
static inline enum dtype linear_operand(const struct linear *a)
{
    return a->float8 ? BF16 : a->dtype;
}
struct linear_fwd {
    const void *x_ND, *w_FD;
    void *y_NF;
    const struct float8_scale *x_scale, *w_scale; /* of float8 */
    const void *add_NF;                           /* with `accumulate`; NULL: y_NF itself */
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
/* dx (+)= dy w */
enum status linear_backward_input(const struct ops *, const struct linear *,
                                  const struct linear_bwd_input *, struct queue *);
/* dw (+)= dy^T x */
enum status linear_backward_weight(const struct ops *, const struct linear *,
                                   const struct linear_bwd_weight *, struct queue *);
