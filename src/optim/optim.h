/* optim.h -- from gradients to new weights: norm, clip, schedule, AdamW.
 *
 * Axes     One flat range in the model's layout; moments have the same layout. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/params.h"
#include "ops/ops.h"
#include "optim/optim_config.h"
#include "tensor/dtype.h"
#include "tensor/queue.h"

/* Learning rate of a step; step 1 is the first.  Formulas: docs/notation.md. */
double schedule_lr(const struct lr_scheduler_config *c, double peak_lr, int64_t total_steps,
                   int64_t step);

struct optim {
    const struct optimizer_config *config; /* borrowed */
    const struct layout *layout;           /* borrowed */
    float *weights, *exp_avg, *exp_avg_sq; /* borrowed; flat, f32 */
    void *copy;                            /* the model's weights, or NULL when it uses `weights` */
    enum dtype copy_dtype;
};

/* L2 norm of the whole gradient buffer. */
enum status optim_grad_norm(const struct optim *o, const struct ops *ops, const float *gradients,
                            double *norm, struct queue *on);
/* One AdamW step with the gradient scaled by `scale` (the clip factor).  `step` counts from 1. */
enum status optim_step(const struct optim *o, const struct ops *ops, const float *gradients,
                       double lr, double scale, int64_t step, struct queue *on);
