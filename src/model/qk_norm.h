/* qk_norm.h -- RMSNorm of queries and keys before RoPE: of each head (model.qk_norm), or of all
 * heads of a token together (model.post_norm).
 *
 * Axes     N tokens, R = H + G heads.
 * Ranks    Tensor parallelism shards the heads.  The norm of all heads needs the sum of squares of
 *          all ranks' heads, and in backward a second sum: both are collective over the group. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.h"

/* Index 0 is of q, 1 of k. */
struct qk_norm {
    int layer, N;
    const void *x[2];
    void *y[2];       /* the result, in backward the gradient, which is replaced; may be x */
    size_t stride[2]; /* elements from one token to the next, of x and y */
    float *rstd_NR;   /* kept for backward */
};

enum status qk_norm_forward(const struct model *m, const struct qk_norm *n);
/* Accumulates the gradients of the weights; `step` has memory for sums. */
enum status qk_norm_backward(const struct model *m, const struct qk_norm *n, struct arena *step);
