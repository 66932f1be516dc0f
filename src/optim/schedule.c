// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

static double cosine(double p) { return 0.5 * (1 + cos(pi * p)); }

static double decay(const struct lr_scheduler_config *c, double p)
{
    double f = 0;
    switch (c->decay_type) {
    case LR_DECAY_linear: f = 1 - p; break;
    case LR_DECAY_sqrt: f = 1 - sqrt(p); break;
    case LR_DECAY_cosine: f = cosine(p); break;
    case LR_DECAY_exponential: f = 2 * pow(0.5, p) - 1; break;
    case LR_DECAY_inverse_sqrt: break; /* of the warmup, not of p: see megatron */
    }
    return c->min_lr_factor + (1 - c->min_lr_factor) * f;
}

/* s, n, w, rows_done and rows of schedule.h. */
struct schedule_time {
    int64_t s, n, w, rows_done, rows;
};

static double torchtitan(const struct lr_scheduler_config *c, struct schedule_time at)
{
    int64_t s = at.s, n = at.n, w = at.w;
    if (w > n) w = n;
    /* Like Python's round: ties to even. */
    int64_t d = c->decay_ratio < 0 ? n - w : (int64_t)nearbyint((double)n * c->decay_ratio);
    if (d > n - w) d = n - w;
    int64_t decay_from = n + 1 - d;
    if (s < w) return (double)(s + 1) / (double)w;
    if (s < decay_from || d <= 0) return 1;
    return decay(c, fmin(1, (double)(s + 1 - decay_from) / (double)d));
}

static double frontier(struct schedule_time at)
{
    int64_t s = at.s, n = at.n, w = at.w;
    if (s < w) return (double)(s + 1) / (double)(w + 1);
    return fmax(0, 1 - (double)(s - w) / (double)(n - w > 1 ? n - w : 1));
}

static double nxdt(const struct lr_scheduler_config *c, struct schedule_time at)
{
    int64_t s = at.s, n = at.n, w = at.w;
    if (w > 0 && s <= w) return (double)(s + 1) / (double)(w + 1);
    if (s > n) return c->min_lr_factor;
    double progress = n > w ? (double)(s - w) / (double)(n - w) : 1;
    return c->min_lr_factor + (1 - c->min_lr_factor) * cosine(progress);
}

/* Megatron-LM counts samples, not steps: a length need not be a multiple of a step's samples. */
static double megatron(const struct lr_scheduler_config *c, struct schedule_time at)
{
    double rows = (double)at.rows, s = (double)at.rows_done;
    double n = c->total_samples ? (double)c->total_samples : (double)at.n * rows;
    double w = c->warmup_samples ? (double)c->warmup_samples : (double)at.w * rows;
    if (w > 0 && s <= w) return s / w;
    if (c->decay_ratio == 0) return 1;
    if (s > n) return c->min_lr_factor;
    if (c->decay_type == LR_DECAY_inverse_sqrt)
        return fmax(c->min_lr_factor, sqrt(fmax(w, 1) / fmax(s, 1)));
    if (c->decay_ratio < 0) return decay(c, n > w ? (s - w) / (n - w) : 0);
    double d = nearbyint(n * c->decay_ratio);
    return s <= n - d ? 1 : decay(c, (s - (n - d)) / d);
}

double schedule_lr(const struct lr_scheduler_config *c, double peak_lr,
                   const struct schedule_step *at)
{
    struct schedule_time time = {at->step - 1, c->total_steps ? c->total_steps : at->total_steps,
                                 c->warmup_steps, at->rows_done, at->rows};
    switch (c->formula) {
    case LR_FORMULA_torchtitan: return peak_lr * torchtitan(c, time);
    case LR_FORMULA_frontier: return peak_lr * frontier(time);
    case LR_FORMULA_nxdt: return peak_lr * nxdt(c, time);
    case LR_FORMULA_megatron: return peak_lr * megatron(c, time);
    }
    return 0;
}

double schedule_decoupled_lr(const struct lr_scheduler_config *c, double peak_lr,
                             const struct schedule_step *at)
{
    struct lr_scheduler_config own = *c;
    own.min_lr_factor = c->decoupled_min_lr_factor;
    return schedule_lr(&own, peak_lr, at);
}
