/* rmsnorm.h -- y = x / sqrt(mean(x^2) + eps) * w  (Zhang and Sennrich 2019, eq. 4).
 *
 * Axes     N tokens, D width.
 * Heads    With `heads` the rows are heads of tokens, as in QK norm: each token has that many, one
 *          after the other, and the next token's are `stride` elements further on.  x, y, dy and dx
 *          all have this layout; N counts rows.
 * Parts    A row whose elements are sharded over ranks takes two calls.  RMSNORM_SUMS only writes
 *          the sum of squares of this rank's D elements of each row to rstd_N, in backward the sum
 *          of dy w x rstd to dot_N.  The caller adds up those of all ranks there, and RMSNORM_APPLY
 *          computes the rest from the totals; `width` is the length of whole rows.
 * Memory   y may be x, and dx may be dy.
 * Units    rstd_N is 1 / sqrt(mean(x^2) + eps), in f32, kept for backward.
 * Order    In f32: normalize, round to dtype, then multiply by w, as the reference code of Llama
 *          does. dw accumulates rows in a fixed grouping that does not depend on threads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>

enum rmsnorm_part { RMSNORM_WHOLE, RMSNORM_SUMS, RMSNORM_APPLY };

struct rmsnorm {
    int N, D;
    float eps;
    enum dtype dtype; /* of x, w, y, dy, dx */
    bool accumulate;  /* backward adds to dx, which has the gradient of the residual stream */
    bool y_packed;    /* y and dy are packed (ops.h) */
    int heads;        /* rows of a token; 0: rows are dense */
    size_t stride;    /* with `heads`: elements from one token to the next */
    enum rmsnorm_part part;
    int width; /* unless RMSNORM_WHOLE */
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
    float *dw_D;  /* accumulates */
    float *dot_N; /* unless RMSNORM_WHOLE */
};

/* Elements of a whole row. */
static inline int rmsnorm_width(const struct rmsnorm *a)
{
    return a->part == RMSNORM_WHOLE ? a->D : a->width;
}

/* Elements from the first row to row n. */
static inline size_t rmsnorm_row(const struct rmsnorm *a, size_t n)
{
    size_t D = (size_t)a->D, heads = (size_t)a->heads;
    return heads ? n / heads * a->stride + n % heads * D : n * D;
}

/* SHAPE: N or D below 1, eps negative, heads that do not divide N, exceed the stride or are packed,
 * or parts of rows that are packed or longer than `width`. */
enum status rmsnorm_forward(const struct ops *, const struct rmsnorm *, const struct rmsnorm_fwd *,
                            struct queue *);
enum status rmsnorm_backward(const struct ops *, const struct rmsnorm *, const struct rmsnorm_bwd *,
                             struct queue *);
