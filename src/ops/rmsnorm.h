/* rmsnorm.h -- y = x / sqrt(mean(x^2) + eps) * w  (Zhang and Sennrich 2019, eq. 4).
 *
 * Axes     N tokens, D width.
 * Units    rstd_N is 1 / sqrt(mean(x^2) + eps), in f32, kept for backward.
 * Order    In f32: normalize, round to dtype, then multiply by w, as the reference code of Llama
 *          does. dw accumulates rows in a fixed grouping that does not depend on threads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>

struct rmsnorm {
    int N, D;
    float eps;
    enum dtype dtype; /* of x, w, y, dy, dx */
    bool accumulate;  /* backward adds to dx, which has the gradient of the residual stream */
    bool y_packed;    /* y and dy are packed (ops.h) */
};
struct rmsnorm_fwd {
    const void *x_ND, *w_D;
    void *y_ND;
    float *rstd_N;
    float *amax; /* amax of y (float8.h); may be NULL */
};
struct rmsnorm_bwd {
    const void *dy_ND, *x_ND, *w_D;
    const float *rstd_N;
    void *dx_ND;
    float *dw_D; /* accumulates */
};

/* SHAPE: N or D below 1, or eps negative. */
enum status rmsnorm_forward(const struct ops *, const struct rmsnorm *, const struct rmsnorm_fwd *,
                            struct queue *);
enum status rmsnorm_backward(const struct ops *, const struct rmsnorm *, const struct rmsnorm_bwd *,
                             struct queue *);
