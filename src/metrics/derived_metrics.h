/* derived_metrics.h -- throughput, MFU and ETA, computed from the counters of a logged step.
 *
 * Units    Seconds and bytes; rates are per second; a share is a fraction of 1. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "metrics/metrics.h"

struct derived_metrics {
    double tokens_per_second, tokens_per_second_per_rank;
    double tflops_per_rank;            /* 1e12 model FLOPs per second */
    double mfu;                        /* model FLOPs utilization; NaN: the peak is unknown */
    double step_seconds, data_seconds; /* of one step */
    double data_share;                 /* of the time */
    double memory_gib, memory_share;   /* of the device; share 0: its size is unknown */
};

/* Rates are 0 if no time has passed. */
struct derived_metrics derived_metrics_compute(const struct metrics_options *o,
                                               const struct step_metrics *s);

/* Estimates the time to completion from an exponential moving average of the step time.  The second
 * interval replaces the first, which includes the warm-up. */
struct eta {
    double step_seconds;
    int num_intervals;
};
void eta_add(struct eta *e, double seconds, int64_t steps);
double eta_remaining_s(const struct eta *e, int64_t step, int64_t last_step);
