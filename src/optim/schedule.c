// SPDX-License-Identifier: Apache-2.0
#include "optim/optim.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static double linear(double p) { return 1 - p; }
static double root(double p) { return 1 - sqrt(p); }
static double cosine(double p) { return 0.5 * (1 + cos(pi * p)); }

static const struct {
    const char *name;
    double (*factor)(double progress);
} decays[] = {{"linear", linear}, {"sqrt", root}, {"cosine", cosine}};

/* All take s (steps before this one), the length n and the warmup w. */
static double torchtitan(const struct lr_scheduler_config *c, int64_t s, int64_t n, int64_t w)
{
    if (w > n) w = n;
    /* Python's round: ties to even, as nearbyint in the default mode. */
    int64_t d = c->decay_ratio < 0 ? n - w : (int64_t)nearbyint((double)n * c->decay_ratio);
    if (d > n - w) d = n - w;
    int64_t decay_from = n + 1 - d;
    if (s < w) return (double)(s + 1) / (double)w;
    if (s < decay_from || d <= 0) return 1;
    double progress = fmin(1, (double)(s + 1 - decay_from) / (double)d), f = 0;
    for (size_t i = 0; i < sizeof decays / sizeof decays[0]; i++)
        if (!strcmp(c->decay_type, decays[i].name)) f = decays[i].factor(progress);
    return c->min_lr_factor + (1 - c->min_lr_factor) * f;
}

static double frontier(const struct lr_scheduler_config *c, int64_t s, int64_t n, int64_t w)
{
    (void)c;
    if (s < w) return (double)(s + 1) / (double)(w + 1);
    return fmax(0, 1 - (double)(s - w) / (double)(n - w > 1 ? n - w : 1));
}

static double nxdt(const struct lr_scheduler_config *c, int64_t s, int64_t n, int64_t w)
{
    if (w > 0 && s <= w) return (double)(s + 1) / (double)(w + 1);
    if (s > n) return c->min_lr_factor;
    double progress = n > w ? (double)(s - w) / (double)(n - w) : 1;
    return c->min_lr_factor + (1 - c->min_lr_factor) * cosine(progress);
}

static const struct {
    const char *name;
    double (*factor)(const struct lr_scheduler_config *, int64_t s, int64_t n, int64_t w);
} formulas[] = {{"torchtitan", torchtitan}, {"frontier", frontier}, {"nxdt", nxdt}};

double schedule_lr(const struct lr_scheduler_config *c, double peak_lr, int64_t total_steps,
                   int64_t step)
{
    int64_t n = c->total_steps ? c->total_steps : total_steps;
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++)
        if (!strcmp(c->formula, formulas[i].name))
            return peak_lr * formulas[i].factor(c, step - 1, n, c->warmup_steps);
    BUG("no such lr_scheduler.formula: options let it through");
}
