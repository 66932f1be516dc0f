/* rmsnorm.h -- y = x / sqrt(mean(x^2) + eps) * w  (Zhang and Sennrich 2019, eq. 4).
 *
 * Axes     N tokens, D width.
 * Units    rstd_N is 1 / sqrt(mean(x^2) + eps), in f32, kept for backward.
 * Order    In f32: normalise, round to dtype, then multiply by w (as Llama's own code does).  dw
 *          adds rows in a fixed grouping that does not depend on threads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>

struct rmsnorm {
    int N, D;
    float eps;
    enum dtype dtype; /* of x, w, y, dy, dx */
    bool accumulate;  /* backward adds to dx: the residual stream's gradient is already there */
    bool y_private;   /* ops.h; and so is dy */
};
struct rmsnorm_fwd {
    const void *x_ND, *w_D;
    void *y_ND;
    float *rstd_N;
    float *largest; /* NULL, or becomes the largest |y|, as amax (float8.h) finds it */
};
struct rmsnorm_bwd {
    const void *dy_ND, *x_ND, *w_D;
    const float *rstd_N;
    void *dx_ND;
    float *dw_D; /* added to */
};

enum status rmsnorm_forward(const struct ops *, const struct rmsnorm *, const struct rmsnorm_fwd *,
                            struct queue *);
enum status rmsnorm_backward(const struct ops *, const struct rmsnorm *, const struct rmsnorm_bwd *,
                             struct queue *);
