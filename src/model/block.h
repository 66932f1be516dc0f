/* block.h -- one transformer block, forward and backward, side by side.
 *
 * Axes     N = B*T tokens, S those whose residual stream is local, D width of the stream. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/block_call.h"

/* out = block(a->x).  in_place: the residual stream stays in one buffer, x = middle = out;
 * otherwise out must not be a->x. */
enum status block_forward(const struct block_call *k, const struct microbatch *b, bool in_place,
                          void *out_SD);
/* x += attended w^T, the end of the attention half. */
enum status block_add_attention(const struct block_call *k, void *x_SD);
/* x += mlp(norm(x)), the second half. */
enum status block_add_mlp(const struct block_call *k, void *x_SD);
/* Recomputes what forward did not save, then replaces dx, the gradient of the output, by that of
 * the input.  Overwrites activations. */
enum status block_backward(const struct block_call *k, const struct microbatch *b, void *dx_SD,
                           struct arena *step);
