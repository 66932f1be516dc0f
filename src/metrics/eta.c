// SPDX-License-Identifier: Apache-2.0
#include "metrics/eta.h"

void eta_add(struct eta *e, double seconds, double rows)
{
    if (!(seconds > 0) || !(rows > 0)) return;
    double weight = e->num_intervals < 2 ? 1 : 0.3;
    e->row_seconds += weight * (seconds / rows - e->row_seconds);
    e->num_intervals++;
}

double eta_remaining_s(const struct eta *e, int64_t rows_done, int64_t last_rows)
{
    return rows_done < last_rows ? e->row_seconds * (double)(last_rows - rows_done) : 0;
}
