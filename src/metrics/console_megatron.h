/* console_megatron.h -- Megatron-LM's console lines, as its users' scripts parse them: with the
 * throughput of --log-throughput, and ROCm's "mem usages", a fraction of the device's memory.
 *
 * Units    Milliseconds; TFLOP/s of model FLOPs with causal attention counted as half; samples are
 *          rows. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "metrics/derived_metrics.h"

void console_megatron_step(struct text *t, const struct metrics_options *o,
                           const struct step_metrics *s, const struct derived_metrics *d,
                           const struct run_progress *p);
/* Appends three lines. */
void console_megatron_validation(struct text *t, int64_t step, double loss);

/* The summary that ROCm's scripts print at the end of a run: means over the logged lines without
 * the first two and the last. */
struct megatron_means {
    int lines;
    struct megatron_figures {
        double tflops, ms, memory_share, rows;
    } last, sums; /* sums: over all lines between the first two and the last */
};
void console_megatron_add(struct megatron_means *m, const struct metrics_options *o,
                          const struct step_metrics *s, const struct derived_metrics *d);
/* Appends four lines; nothing if there are fewer than four logged lines. */
void console_megatron_summary(struct text *t, const struct megatron_means *m,
                              const struct metrics_options *o);
