// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

static double linear(double p) { return 1 - p; }
static double sqrt_decay(double p) { return 1 - sqrt(p); }
static double cosine(double p) { return 0.5 * (1 + cos(pi * p)); }
static double exponential(double p) { return 2 * pow(0.5, p) - 1; }

static double decay(const struct lr_scheduler_config *c, double progress)
{
    static double (*const factors[])(double) = {[LR_DECAY_linear] = linear,
                                                [LR_DECAY_sqrt] = sqrt_decay,
                                                [LR_DECAY_cosine] = cosine,
                                                [LR_DECAY_exponential] = exponential,
                                                [LR_DECAY_inverse_sqrt] = NULL};
    double f = factors[c->decay_type] ? factors[c->decay_type](progress) : 0;
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

static double frontier(const struct lr_scheduler_config *c, struct schedule_time at)
{
    int64_t s = at.s, n = at.n, w = at.w;
    (void)c;
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
    static double (*const factors[])(const struct lr_scheduler_config *,
                                     struct schedule_time) = {[LR_FORMULA_torchtitan] = torchtitan,
                                                              [LR_FORMULA_frontier] = frontier,
                                                              [LR_FORMULA_nxdt] = nxdt,
                                                              [LR_FORMULA_megatron] = megatron};
    struct schedule_time time = {at->step - 1, c->total_steps ? c->total_steps : at->total_steps,
                                 c->warmup_steps, at->rows_done, at->rows};
    return peak_lr * factors[c->formula](c, time);
}

double schedule_decoupled_lr(const struct lr_scheduler_config *c, double peak_lr,
                             const struct schedule_step *at)
{
    struct lr_scheduler_config own = *c;
    own.min_lr_factor = c->decoupled_min_lr_factor;
    return schedule_lr(&own, peak_lr, at);
}
