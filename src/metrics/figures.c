// SPDX-License-Identifier: Apache-2.0
#include "metrics/figures.h"

#include <math.h>

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

struct figures figures_make(const struct metrics_options *o, const struct step_metrics *s)
{
    struct figures f = {0};
    f.tokens_per_second = ratio((double)s->tokens, s->seconds);
    f.tokens_per_second_per_rank = ratio(f.tokens_per_second, o->num_ranks);
    double flops = f.tokens_per_second_per_rank * o->flops_per_token;
    f.tflops_per_rank = flops / 1e12;
    f.mfu = o->peak_flops > 0 ? flops / o->peak_flops : (double)NAN;
    f.step_seconds = ratio(s->seconds, (double)s->steps);
    f.data_seconds = ratio(s->data_seconds, (double)s->steps);
    f.data_share = ratio(s->data_seconds, s->seconds);
    f.memory_gib = (double)s->memory_bytes / (1 << 30);
    f.memory_share = ratio((double)s->memory_bytes, o->memory_total_bytes);
    return f;
}

void pace_add(struct pace *p, double seconds, int64_t steps)
{
    if (!(seconds > 0) || steps <= 0) return;
    double weight = p->num_intervals < 2 ? 1 : 0.3;
    p->step_seconds += weight * (seconds / (double)steps - p->step_seconds);
    p->num_intervals++;
}

double pace_left_s(const struct pace *p, int64_t step, int64_t last_step)
{
    return step < last_step ? p->step_seconds * (double)(last_step - step) : 0;
}
