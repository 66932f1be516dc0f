/* schedule.h -- the learning rate schedule.
 *
 * The rate of a step is peak_lr times a factor.  Steps count from 1; s = step - 1,
 * w = warmup_steps, n = the length (config total_steps if set, else that of the run),
 * m = min_lr_factor.
 *
 * torchtitan  s < w: (s+1)/w.  s < n+1-d: 1, with d = round(n decay_ratio) decay steps
 *             (decay_ratio -1: n-w; at most n-w).  Then f(p) (1-m) + m with
 *             p = (s+1 - (n+1-d)) / d up to 1, where f is 1-p (linear), 1-sqrt(p) (sqrt),
 *             (1+cos(pi p))/2 (cosine), or 2 (1/2)^p - 1 (exponential).
 * frontier    s < w: (s+1)/(w+1).  Then 1 - (s-w)/max(1, n-w), at least 0.
 * nxdt        s <= w: (s+1)/(w+1).  Then (1+cos(pi (s-w)/(n-w)))/2 (1-m) + m.  s > n: m.
 * megatron    In samples: s = rows_done, w and n have `rows` per step.  s <= w: s/w.  s > n: m.
 *             Otherwise f(p) (1-m) + m with p = (s-w)/(n-w); or, with d = round(n decay_ratio),
 *             1 until n-d, then p = (s-(n-d))/d; d = 0: always 1.
 *             inverse_sqrt: max(m, sqrt(w/s)). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optim_config.h"

#include <stdint.h>

/* A step of a run. */
struct schedule_step {
    int64_t step, total_steps; /* from 1; of the run */
    int64_t rows_done;         /* before this step */
    int64_t rows;              /* of a step, without a batch ramp */
};

double schedule_lr(const struct lr_scheduler_config *c, double peak_lr,
                   const struct schedule_step *at);
/* The rate of the embedding and the head: the same, with decoupled_min_lr_factor. */
double schedule_decoupled_lr(const struct lr_scheduler_config *c, double peak_lr,
                             const struct schedule_step *at);
