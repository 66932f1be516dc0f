/* eta.h -- estimates the time to completion: the median time per row of the last intervals, as
 * steps may have different numbers of rows and neighbors may slow some of them, and a share for
 * validations. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

enum { ETA_INTERVALS = 9 };

struct eta {
    double row_seconds[ETA_INTERVALS]; /* a ring */
    double pause_seconds, rows;        /* in total, without the first interval */
    int64_t num_intervals;             /* without the first */
    int has_begun;
};
/* Adds an interval of some rows; ignores an empty one.  The first includes the warm-up and does not
 * count. */
void eta_add(struct eta *e, double seconds, double rows);
/* Adds time that is not part of an interval: a validation's. */
void eta_add_pause(struct eta *e, double seconds);
/* NAN before the second interval. */
double eta_remaining_s(const struct eta *e, int64_t rows_done, int64_t last_rows);
