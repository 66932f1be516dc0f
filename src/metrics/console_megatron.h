/* console_megatron.h -- the lines of Megatron-LM, as its users' scripts read them: with
 * throughput, as --log-throughput gives it, and ROCm's "mem usages", a share of the device.
 *
 * Units    Milliseconds; TFLOP/s of model FLOPs with half of attention's products, causal rows
 *          having no more; samples are rows. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "metrics/figures.h"

void megatron_step(struct text *t, const struct metrics_options *o, const struct step_metrics *s,
                   const struct figures *f, double wall_s);
/* Three lines. */
void megatron_validation(struct text *t, int64_t step, double loss);

/* What ROCm's scripts print at the end of a run: means of the logged lines' figures, of which the
 * first two and the last are left out. */
struct megatron_means {
    int lines;
    struct megatron_figures {
        double tflops, ms, memory_share;
    } last, sums; /* sums: of all before the last but the first two */
};
void megatron_add(struct megatron_means *m, const struct metrics_options *o,
                  const struct step_metrics *s, const struct figures *f);
/* Four lines, or none where nothing is left. */
void megatron_summary(struct text *t, const struct megatron_means *m,
                      const struct metrics_options *o);
