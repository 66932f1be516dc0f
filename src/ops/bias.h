/* bias.h -- y += b, the bias of a linear layer, and its gradient.
 *
 * Axes     N tokens, F width of the layer's output.
 * Order    In f32, rounded once.  db accumulates rows in a fixed grouping that does not depend on
 *          threads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

struct bias {
    int N, F;
    enum dtype dtype; /* of b, y, dy */
};
struct bias_fwd {
    const void *b_F;
    void *y_NF; /* in place */
};
struct bias_bwd {
    const void *dy_NF;
    float *db_F; /* accumulates */
};

/* y += b in each row.  SHAPE: N or F below 1. */
enum status bias_forward(const struct ops *, const struct bias *, const struct bias_fwd *,
                         struct queue *);
/* db += the sum of the rows of dy.  SHAPE: as bias_forward. */
enum status bias_backward(const struct ops *, const struct bias *, const struct bias_bwd *,
                          struct queue *);
