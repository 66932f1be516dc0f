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
    bool found;   /* the operation that made x, in backward dy, has left its largest number */
    bool attends; /* what lies between it and attention is private (ops.h) */
};

/* Whether that operation is to leave it, right before the product: where its kernel finds it on its
 * way, and all of the tensor is here.  Then it goes to product_largest, else that is NULL. */
bool product_finds(const struct model *m, enum product_id id, int layer);
float *product_largest(const struct model *m, enum product_id id, int layer);
/* y = x w^T (+ add_NF); what is added may be y. */
enum status product_forward(const struct model *m, const struct product_call *call, const void *x,
                            void *y, const void *add_NF, bool adds);
/* dx = dy w;  dw += dy^T x */
enum status product_backward(const struct model *m, const struct product_call *call, const void *dy,
                             const void *x, void *dx);
