// SPDX-License-Identifier: Apache-2.0
#include "metrics/console_megatron.h"

#include <math.h>
#include <time.h>

static double tflops(const struct metrics_options *o, const struct derived_metrics *d)
{
    return d->tokens_per_second_per_rank * o->causal_flops_per_token / 1e12;
}

void console_megatron_step(struct text *t, const struct metrics_options *o,
                           const struct step_metrics *s, const struct derived_metrics *d,
                           const struct run_progress *p)
{
    char when[32] = "";
    struct tm local;
    time_t now = (time_t)p->wall_s;
    if (localtime_r(&now, &local)) strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
    text_addf(t, " [%s] iteration %8lld/%8lld |", when, (long long)s->step,
              (long long)o->last_step);
    text_addf(t, " consumed samples: %12lld |", (long long)s->rows_done);
    text_addf(t, " elapsed time per iteration (ms): %.1f |", 1e3 * d->step_seconds);
    text_addf(t, " mem usages: %.4f |", d->memory_share);
    text_addf(t, " throughput per GPU (TFLOP/s/GPU): %.1f |", tflops(o, d));
    text_addf(t, " learning rate: %.6E |", s->lr);
    text_addf(t, " global batch size: %5lld |", (long long)s->rows);
    text_addf(t, " lm loss: %.6E | loss scale: 1.0 |", s->loss);
    text_addf(t, " grad norm: %.3f |", s->grad_norm);
    if (s->parameter_norm > 0) text_addf(t, " params norm: %.3f |", s->parameter_norm);
    text_addf(t, " number of skipped iterations: %3lld |", (long long)s->skipped);
    text_adds(t, " number of nan iterations:   0 |"); /* such a step is skipped or ends the run */
}

void console_megatron_validation(struct text *t, int64_t step, double loss)
{
    struct text line = {0};
    text_addf(&line,
              " validation loss at iteration %lld | lm loss value: %.6E | lm loss PPL: %.6E | ",
              (long long)step, loss, exp(fmin(20, loss)));
    for (size_t i = 0; i <= line.len; i++) text_adds(t, "-");
    text_addf(t, "\n%s\n", line.data);
    for (size_t i = 0; i <= line.len; i++) text_adds(t, "-");
    text_release(&line);
}

void console_megatron_add(struct megatron_means *m, const struct metrics_options *o,
                          const struct step_metrics *s, const struct derived_metrics *d)
{
    if (!s->steps) return;
    if (m->lines > 2) {
        m->sums.tflops += m->last.tflops;
        m->sums.ms += m->last.ms;
        m->sums.memory_share += m->last.memory_share;
        m->sums.rows += m->last.rows;
    }
    m->last = (struct megatron_figures){tflops(o, d), 1e3 * d->step_seconds, d->memory_share,
                                        d->step_rows};
    m->lines++;
}

void console_megatron_summary(struct text *t, const struct megatron_means *m,
                              const struct metrics_options *o)
{
    if (m->lines < 4) return;
    double n = m->lines - 3, ms = m->sums.ms / n;
    double tokens = m->sums.rows / n * (double)o->row_tokens;
    text_addf(t, "throughput per GPU: %.10g\n", m->sums.tflops / n);
    text_addf(t, "elapsed time per iteration: %.10g\n", ms);
    text_addf(t, "tokens/GPU/s: %.10g\n", ms > 0 ? tokens * 1e3 / (ms * o->num_ranks) : 0);
    text_addf(t, "mem usages: %.10g", m->sums.memory_share / n);
}
