/* derived_metrics.h -- throughput, MFU and memory use, computed from the counters of one step.
 *
 * Units    Seconds and bytes; rates are per second; a share is a fraction of 1. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "metrics/step_metrics.h"

struct derived_metrics {
    double tokens_per_second, tokens_per_second_per_rank;
    double tflops_per_rank;            /* 1e12 model FLOPs per second */
    double mfu;                        /* model FLOPs utilization; NaN: the peak is unknown */
    double step_seconds, data_seconds; /* of one step */
    double step_rows;                  /* mean rows of a step, over all ranks */
    double data_share;                 /* of the time */
    double padding_share;              /* of the tokens */
    double memory_gib, memory_share;   /* of the device; share 0: its size is unknown */
};

/* Rates are 0 if no time has passed. */
struct derived_metrics derived_metrics_compute(const struct metrics_options *o,
                                               const struct step_metrics *s);

/* Where the run stands when a line is printed. */
struct run_progress {
    double elapsed_s;       /* since this start */
    double remaining_s;     /* estimated */
    double wall_s;          /* the current time, in seconds since 1970 */
    double best_throughput; /* rows per second: the highest of earlier lines */
};
