// SPDX-License-Identifier: Apache-2.0
#include "metrics/eta.h"

#include "base/median.h"

#include <math.h>
#include <string.h>

void eta_add(struct eta *e, double seconds, double rows)
{
    if (!(seconds > 0) || !(rows > 0)) return;
    if (e->has_begun) {
        e->row_seconds[e->num_intervals++ % ETA_INTERVALS] = seconds / rows;
        e->rows += rows;
    }
    e->has_begun = 1;
}

void eta_add_pause(struct eta *e, double seconds)
{
    if (seconds > 0 && e->num_intervals) e->pause_seconds += seconds;
}

double eta_remaining_s(const struct eta *e, int64_t rows_done, int64_t last_rows)
{
    double sorted[ETA_INTERVALS];
    size_t count = e->num_intervals < ETA_INTERVALS ? (size_t)e->num_intervals : ETA_INTERVALS;
    if (rows_done >= last_rows) return 0;
    if (!count) return (double)NAN;
    memcpy(sorted, e->row_seconds, count * sizeof *sorted);
    double row_seconds = median(sorted, (int)count) + e->pause_seconds / e->rows;
    return row_seconds * (double)(last_rows - rows_done);
}
