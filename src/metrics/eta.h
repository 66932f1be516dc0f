/* eta.h -- estimates the time to completion from an exponential moving average of the step time. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

/* The second interval replaces the first, which includes the warm-up. */
struct eta {
    double step_seconds;
    int num_intervals;
};
/* Adds an interval of some steps; ignores an empty one. */
void eta_add(struct eta *e, double seconds, int64_t steps);
double eta_remaining_s(const struct eta *e, int64_t step, int64_t last_step);
