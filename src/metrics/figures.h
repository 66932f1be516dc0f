/* figures.h -- what is worked out from the counts of a logged step.
 *
 * Units    Seconds and bytes; rates are per second; a share is a part of 1. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "metrics/metrics.h"

struct figures {
    double tokens_per_second, tokens_per_second_per_rank;
    double tflops_per_rank;            /* 1e12 model FLOPs a second */
    double mfu;                        /* share of the peak; NaN: the peak is not known */
    double step_seconds, data_seconds; /* of one step */
    double data_share;                 /* of the time */
    double memory_gib, memory_share;   /* of the device; share 0: its size is not known */
};

/* Where no time has passed, rates are 0. */
struct figures figures_make(const struct metrics_options *o, const struct step_metrics *s);

/* How fast steps go, for the time that is left: a mean in which late steps count more.  The first
 * interval is forgotten as soon as there is a second one, since it holds the warm-up. */
struct pace {
    double step_seconds;
    int num_intervals;
};
void pace_add(struct pace *p, double seconds, int64_t steps);
double pace_left_s(const struct pace *p, int64_t step, int64_t last_step);
