/* float8.h -- scales of the numbers of eight bits that products are made of.
 *
 * A product of a block has three tensors: what it reads, its weights (E4M3), the gradient of what
 * it gives (E5M2).  Each has one scale.  Current: from the largest number it has there and then, of
 * a micro-batch's rows that are here.  Delayed: from the largest of the steps before; it is the
 * same in all of a step, and in its first step a tensor's is current.
 *
 * Axes     L blocks, PRODUCTS of each, FLOAT8_ROLES tensors of each.
 * Memory   A history for every block of the whole model, so that whoever has which blocks does not
 *          matter.  Operations find scales and read them; the host reads what they have met after
 *          queue_wait, once a step.
 * Order    begin -> passes over the step's micro-batches -> gather -> what was seen becomes the
 *          largest that anyone has seen -> learn.  Seeing a number twice changes nothing, so
 *          neither does recomputing.  A step that is dropped teaches nothing.
 * Sources  torchao's float8 (tensorwise); Transformer Engine's DelayedScaling, which learns after
 *          each micro-batch, and whose first scales are 1 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "model/model_config.h"
#include "ops/float8.h"

#include <stdbool.h>
#include <stddef.h>

/* Of a block, by the first of the weights that are multiplied as one matrix. */
enum product_id { PRODUCT_attn_q, PRODUCT_attn_out, PRODUCT_mlp_gate, PRODUCT_mlp_down, PRODUCTS };

enum float8_role { FLOAT8_INPUT, FLOAT8_WEIGHT, FLOAT8_GRADIENT, FLOAT8_ROLES };
static inline enum float8 float8_format(enum float8_role role)
{
    return role == FLOAT8_GRADIENT ? E5M2 : E4M3;
}

struct float8_state {
    int blocks;
    bool delayed[FLOAT8_ROLES];
    bool *chosen; /* of each product: it is of eight bits; owned */
    int window;   /* steps of a history */
    bool newest_only;
    int margin;
    struct float8_scale *weight_scales; /* of each product, as its last forward had them */
    /* Of the tensor whose scale is being found: where all of it is on this device, or a part. */
    float *largest, *largest_of_part;
    /* Of each tensor: the largest of this step, which operations write, and then anyone's; by the
     * steps before, 0: none yet; those steps, `known` of them, the next at `next` of a ring. */
    float *met;
    double *seen;
    float *scales, *history;
    int known, next;
};

/* Whether products are to be of eight bits.  CONFIG: a recipe or a converter that is not here. */
enum status float8_wanted(const struct model_config *m, const struct float8_config *c, bool *on);
/* Of the whole model; `shared` is memory that the host reaches, too.  CONFIG: a filter takes one of
 * the weights that are multiplied as one. */
enum status float8_init(struct float8_state *f, const struct float8_config *c,
                        const struct model_shape *shape, struct arena *run, struct arena *shared);
void float8_release(struct float8_state *f);

/* Of f->seen, which is zero without delayed scales. */
size_t float8_seen(const struct float8_state *f);
/* Nothing is met in the step yet.  No operation of the step before is under way. */
void float8_begin(struct float8_state *f);
/* What was met is seen.  No operation of the step is under way. */
void float8_gather(struct float8_state *f);
/* New scales from what was seen. */
void float8_learn(struct float8_state *f);

/* For find_scale of a tensor: where its largest number is met, and its scale by the steps before,
 * which is 0 where it has none yet; NULL both where it is current. */
void float8_held(const struct float8_state *f, int block, enum product_id p, enum float8_role role,
                 float **met, const float **scale);
/* largest of the format / amax / 2^margin; `before` where amax says nothing, the largest f32 where
 * that is above it. */
float float8_delayed(float amax, float before, enum float8 format, int margin);

/* Scales and histories as a JSON value; the bits of f32 in hexadecimal digits. */
void float8_save(const struct float8_state *f, struct text *json);
/* Another window takes the newest that fit.  DATA: not of such a model. */
enum status float8_load(struct float8_state *f, const struct json *saved);
