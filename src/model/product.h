/* product.h -- the four products of a block, forward and backward: of numbers of the model's dtype,
 * or of eight bits; of the model room.
 *
 * Axes     N tokens; a product's D in and F out.
 * Memory   Rounded operands lie in the queue's scratch, under what the product itself takes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/float8.h"
#include "model/model.h"

/* y (+)= x w^T; of eight bits, with the scale that x then has in input_scales[p] (NULL: not kept).
 */
enum status product_forward(const struct model *m, enum product_id p, size_t N, int layer,
                            const void *x, void *y, bool accumulate,
                            struct float8_scale *input_scales);
/* dx = dy w;  dw += dy^T x; with the scale that x had. */
enum status product_backward(const struct model *m, enum product_id p, size_t N, int layer,
                             const void *dy, const void *x, void *dx,
                             const struct float8_scale *input_scales);
