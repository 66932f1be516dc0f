/* matmul.h -- the four matrix multiplies of a block, forward and backward, in the model's dtype or
 * in FP8.
 *
 * Axes     N tokens, D width of the input, F width of the output.
 * Native   On a device that multiplies FP8 bytes, norms and SwiGLU quantize their results instead
 *          of storing them, in both storage orders: backward multiplies what forward quantized.
 * Memory   Quantized operands are in the queue's scratch memory, below what the GEMM itself
 *          allocates. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/float8.h"
#include "model/model.h"
#include "ops/fused_quantize.h"

/* One of a block's matrix multiplies, over N tokens. */
struct matmul_call {
    enum matmul_id id;
    int layer;
    size_t N;
    /* Scales of the inputs of the block's matrix multiplies, which forward saves for backward.
     * NULL: not saved. */
    struct float8_scale *input_scales;
    /* Native FP8: matmul_quantize has quantized x, or dy. */
    bool x_quantized, dy_quantized;
    bool has_scales; /* input_scales has the input's scale, of the same values */
    bool amax_known; /* the op before has written the amax of x, in backward of dy */
    bool qkv_packed; /* the tensor between it and attention is packed (ops.h) */
    bool accumulate; /* forward: y = add + x w^T */
};

/* Without tensor parallelism the output of a norm in front of a GEMM goes to it directly: it may be
 * packed (ops.h). */
static inline bool matmul_norm_is_packed(const struct model *m)
{
    return m->plan->parts == 1 && !m->shape.post_norm;
}

/* The tensors between the GEMMs of the feed-forward layer may be packed, unless a bias is added to
 * one. */
static inline bool matmul_mlp_is_packed(const struct model *m) { return !m->shape.mlp_bias; }

/* The boundary in front of MATMUL_attn_q or MATMUL_mlp_gate. */
enum boundary matmul_input_boundary(enum matmul_id id);
/* Whether the op right before a matrix multiply computes the amax of its output, fused: if its
 * kernel can, and the whole tensor is on this rank. */
bool matmul_fuses_amax(const struct model *m, enum matmul_id id, int layer);
/* Where that op writes the amax; NULL: it does not compute one. */
float *matmul_amax_target(const struct model *m, enum matmul_id id, int layer);
/* Whether a matrix multiply takes FP8 values that the op before can write: native FP8, and enabled
 * for it. */
bool matmul_quantizes_result(const struct model *m, enum matmul_id id, int layer);
/* Whether the norm in front of a matrix multiply writes them: never with post_norm. */
bool matmul_quantizes_norm(const struct model *m, enum matmul_id id, int layer);
/* What it computes: a formula of ops/fused_quantize.h over rows of C columns.  `gathers`: of the
 * rows whose residual stream is local; their FP8 values cross `at`, an all-gather under sequence
 * parallelism. */
struct matmul_source {
    enum fused_result of;
    int C;
    const void *x, *w_C, *dout_NF;
    float *rstd_N;
    bool has_rstd;   /* computed before */
    unsigned summed; /* axes that the GEMMs of the result reduce over (ops/float8.h) */
    bool gathers;
    enum boundary at;
    enum direction direction;
};
/* y8: the FP8 values of the matrix multiply's input or output gradient, of all tokens. */
enum status matmul_quantize(const struct model *m, const struct matmul_call *call,
                            enum float8_role role, const struct matmul_source *source, bf16 *y8);
/* y = x w^T (+ add_NF); add_NF may be y. */
enum status matmul_forward(const struct model *m, const struct matmul_call *call, const void *x,
                           void *y, const void *add_NF);
/* dx = dy w;  dw += dy^T x.  For MATMUL_attn_q and MATMUL_mlp_gate, dx also crosses ATTN_IN or
 * MLP_IN (a reduce-scatter under tensor parallelism) while dw is computed. */
enum status matmul_backward(const struct model *m, const struct matmul_call *call, const void *dy,
                            const void *x, void *dx);
