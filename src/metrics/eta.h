/* eta.h -- estimates the time to completion from an exponential moving average of the time per row,
 * as steps may have different numbers of rows. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

/* The second interval replaces the first, which includes the warm-up. */
struct eta {
    double row_seconds;
    int num_intervals;
};
/* Adds an interval of some rows; ignores an empty one. */
void eta_add(struct eta *e, double seconds, double rows);
double eta_remaining_s(const struct eta *e, int64_t rows_done, int64_t last_rows);
