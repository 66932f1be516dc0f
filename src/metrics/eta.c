// SPDX-License-Identifier: Apache-2.0
#include "metrics/eta.h"

void eta_add(struct eta *e, double seconds, int64_t steps)
{
    if (!(seconds > 0) || steps <= 0) return;
    double weight = e->num_intervals < 2 ? 1 : 0.3;
    e->step_seconds += weight * (seconds / (double)steps - e->step_seconds);
    e->num_intervals++;
}

double eta_remaining_s(const struct eta *e, int64_t step, int64_t last_step)
{
    return step < last_step ? e->step_seconds * (double)(last_step - step) : 0;
}
