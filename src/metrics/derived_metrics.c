// SPDX-License-Identifier: Apache-2.0
#include "metrics/derived_metrics.h"

#include <math.h>

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

struct derived_metrics derived_metrics_compute(const struct metrics_options *o,
                                               const struct step_metrics *s)
{
    struct derived_metrics d = {0};
    d.tokens_per_second = ratio((double)s->tokens, s->seconds);
    d.tokens_per_second_per_rank = ratio(d.tokens_per_second, o->num_ranks);
    double flops = d.tokens_per_second_per_rank * o->flops_per_token;
    d.tflops_per_rank = flops / 1e12;
    d.mfu = o->peak_flops > 0 ? flops / o->peak_flops : (double)NAN;
    d.step_seconds = ratio(s->seconds, (double)s->steps);
    d.data_seconds = ratio(s->data_seconds, (double)s->steps);
    d.step_rows = ratio((double)s->tokens, (double)o->row_tokens * (double)s->steps);
    d.data_share = ratio(s->data_seconds, s->seconds);
    d.padding_share = ratio((double)s->padding, (double)s->tokens);
    d.memory_gib = (double)s->memory_bytes / (1 << 30);
    d.memory_share = ratio((double)s->memory_bytes, o->memory_total_bytes);
    return d;
}
