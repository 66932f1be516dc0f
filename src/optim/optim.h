/* optim.h -- from gradients to new weights: norm, clip, schedule, AdamW.
 *
 * Axes     Flat buffers of the pieces of the model that are here; moments have the same layout. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/shard.h"
#include "ops/ops.h"
#include "optim/optim_config.h"
#include "tensor/dtype.h"
#include "tensor/queue.h"

#include <stdbool.h>

/* Learning rate of a step; step 1 is the first, s = step - 1, w warmup_steps, n the length
 * (total_steps of the config if set, else of the call), m min_lr_factor:
 *   torchtitan  s < w: (s+1)/w;  s < n+1-d: 1, with d = round(n decay_ratio) decaying steps (-1:
 *               n-w; never more than n-w);  then f(p) (1-m) + m, p = (s+1 - (n+1-d)) / d up to 1,
 *               f: 1-p, 1-sqrt(p), (1+cos(pi p))/2
 *   frontier    s < w: (s+1)/(w+1);  then 1 - (s-w)/max(1,n-w), at least 0
 *   nxdt        s <= w: (s+1)/(w+1);  then (1+cos(pi (s-w)/(n-w)))/2 (1-m) + m;  s > n: m
 *   megatron    all in samples, `rows` of them a step: s <= w: s/w;  s > n: m;  then f(p) (1-m) +
 * m, p = (s-w)/(n-w), or with d = round(n decay_ratio) p = (s-(n-d))/d and 1 before that; f as
 * above, or 2 (1/2)^p - 1;  inverse_sqrt: max(m, sqrt(w/s));  d = 0: 1 */
double schedule_lr(const struct lr_scheduler_config *c, double peak_lr, int64_t total_steps,
                   int64_t rows, int64_t step);

/* torch.nn.utils.clip_grad_norm_'s factor: min(1, max_norm / (norm + 1e-6)); max_norm 0: 1. */
double optim_clip_factor(double norm, double max_norm);

struct optim {
    const struct optimizer_config *config; /* borrowed */
    const struct layout *layout;           /* borrowed */
    const struct pieces *pieces;           /* borrowed */
    float *weights;                        /* borrowed; flat; NULL where they are split */
    void *exp_avg, *exp_avg_sq;            /* borrowed; flat */
    void *copy;                            /* the model's weights, or NULL when it uses `weights` */
    enum dtype copy_dtype;
    enum dtype moments; /* BF16: v is rounded at random (update.h), by places in the whole model */
    uint64_t seed;      /* of that */
    bool split;         /* `copy`, of BF16, and `low` are the weights: split_half */
    uint16_t *low;
};

/* What the configuration says: are weights split, and of which type are moments? */
bool optim_splits(const struct optimizer_config *c);
enum dtype optim_moments(const struct optimizer_config *c);

/* Sum of the squares of a flat buffer, of which the norm is the root; not touched while measuring.
 */
enum status optim_squares(const struct optim *o, const struct ops *ops, const float *flat,
                          double *squares, struct queue *on);
/* One AdamW step of every weight (norms undecayed unless config->decay_norms) with the gradient
 * scaled by `scale` (the clip factor).  `step` counts from 1. */
enum status optim_step(const struct optim *o, const struct ops *ops, const float *gradients,
                       double lr, double scale, int64_t step, struct queue *on);
