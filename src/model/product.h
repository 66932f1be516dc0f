/* product.h -- the four products of a block, forward and backward: of numbers of the model's dtype,
 * or of eight bits; of the model room.
 *
 * Axes     N tokens; a product's D in and F out.
 * Memory   Rounded operands lie in the queue's scratch, under what the product itself takes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/float8.h"
#include "model/model.h"

/* Of a block's product, over N tokens. */
struct product_call {
    enum product_id id;
    int layer;
    size_t N;
    /* Of the block's products: forward leaves the scale that x has, backward takes it.  NULL: not
     * kept. */
    struct float8_scale *input_scales;
    /* Of x, in backward of dy, where the operation that made it has found it; NULL: it is looked
     * for. */
    const float *largest;
};

/* Where that operation, right before the product, is to leave it.  NULL: it is not wanted, or what
 * is here is a part of the tensor. */
float *product_largest(const struct model *m, enum product_id id, int layer);
/* y (+)= x w^T */
enum status product_forward(const struct model *m, const struct product_call *call, const void *x,
                            void *y, bool accumulate);
/* dx = dy w;  dw += dy^T x */
enum status product_backward(const struct model *m, const struct product_call *call, const void *dy,
                             const void *x, void *dx);
