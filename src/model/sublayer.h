/* sublayer.h -- what attention and the feed-forward layer have in common: how they read the
 * residual stream and add to it.
 *
 * A sublayer reads a norm of the stream and adds the result of its last matrix multiply, with a
 * bias if the model has one.  With model.post_norm it reads the stream itself, and its result is
 * normalized before it is added.
 * Axes     N tokens, S those whose residual stream is local, D width of the stream, F any width.
 * Ranks    The result of a sublayer's last GEMM is a partial sum of all tokens on each
 *          tensor-parallel rank, since its matrix is row-parallel. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/block_call.h"
#include "model/matmul.h"
#include "model/params.h"
#include "ops/bias.h"

/* A matrix multiply of the block. */
struct matmul_call sublayer_matmul(const struct block_call *k, enum matmul_id id);
/* With native FP8: the axes that later GEMMs reduce over, of the input of a matrix multiply. */
unsigned sublayer_summed_axes(const struct block_call *k, enum matmul_id id);

/* y = norm `id` of the stream, of all tokens. */
enum status sublayer_norm(const struct block_call *k, enum param_id id, const void *x_SD,
                          void *y_ND, float *rstd_S);
/* Gradients around that norm: of its output, and of the stream. */
struct sublayer_gradients {
    void *dy_ND, *dx_SD;
};
/* dx += the norm's gradient: dx already has that of the residual connection.  matmul_backward has
 * reduced dy over the tensor-parallel ranks. */
enum status sublayer_norm_backward(const struct block_call *k, enum param_id id, const void *x_SD,
                                   const float *rstd_S, struct sublayer_gradients d);

/* The operation that adds a bias of F elements to each row. */
struct bias sublayer_bias(const struct block_call *k, size_t rows, int F);
/* y += b.  The bias begins at the weight `id`; those of q, k and v are contiguous, as are those of
 * gate and up. */
enum status sublayer_add_bias(const struct block_call *k, enum param_id id, struct bias op,
                              void *y);
enum status sublayer_add_bias_gradient(const struct block_call *k, enum param_id id, struct bias op,
                                       const void *dy);

/* Input and output of a residual connection; in_place: both are x. */
struct sublayer_residual {
    const void *x_SD;
    void *out_SD;
    bool in_place;
};
/* *added_SD: what is added to the stream, y w^T + b, normalized with model.post_norm; or, unless
 * residual_is_apart, the sum. */
enum status sublayer_output(const struct block_call *k, struct matmul_call call, const void *y,
                            struct sublayer_residual r, void **added_SD);
/* out = x + s (y w^T + b), where s is residual_multiplier, or with model.post_norm
 * x + norm(y w^T + b). */
enum status sublayer_add(const struct block_call *k, struct matmul_call call, const void *y,
                         struct sublayer_residual r);
/* *dx_ND: the gradient of all tokens of what the sublayer adds, gathered from that of the stream;
 * also accumulates the gradients of the bias and the norm of its last GEMM, `call`.  Under sequence
 * parallelism *dx_ND has FP8 values, and call->dy_quantized is set, if the GEMM is in native FP8
 * and what it adds is neither normalized nor scaled. */
enum status sublayer_gather_gradient(const struct block_call *k, struct matmul_call *call,
                                     void *dx_SD, void **dx_ND);
