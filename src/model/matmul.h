/* matmul.h -- the four matrix multiplies of a block, forward and backward, in the model's dtype or
 * in FP8.
 *
 * Axes     N tokens, D width of the input, F width of the output.
 * Memory   Quantized operands are in the queue's scratch memory, below what the GEMM itself
 *          allocates. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/float8.h"
#include "model/model.h"

/* One of a block's matrix multiplies, over N tokens. */
struct matmul_call {
    enum matmul_id id;
    int layer;
    size_t N;
    /* Scales of the inputs of the block's matrix multiplies, which forward saves for backward.
     * NULL: not saved. */
    struct float8_scale *input_scales;
    bool amax_known; /* the op before has written the amax of x, in backward of dy */
    bool qkv_packed; /* the tensor between it and attention is packed (ops.h) */
    bool accumulate; /* forward: y = add + x w^T */
};

/* Without tensor parallelism the output of a norm goes to a GEMM directly: it may be packed
 * (ops.h). */
static inline bool matmul_norm_is_packed(const struct model *m) { return m->plan->parts == 1; }

/* Whether the op right before a matrix multiply computes the amax of its output, fused: if its
 * kernel can, and the whole tensor is on this rank. */
bool matmul_fuses_amax(const struct model *m, enum matmul_id id, int layer);
/* Where that op writes the amax; NULL: it does not compute one. */
float *matmul_amax_target(const struct model *m, enum matmul_id id, int layer);
/* y = x w^T (+ add_NF); add_NF may be y. */
enum status matmul_forward(const struct model *m, const struct matmul_call *call, const void *x,
                           void *y, const void *add_NF);
/* dx = dy w;  dw += dy^T x */
enum status matmul_backward(const struct model *m, const struct matmul_call *call, const void *dy,
                            const void *x, void *dx);
