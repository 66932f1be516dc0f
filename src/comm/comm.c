// SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"

#include <math.h>

enum status comm_all_reduce(const struct comm *c, enum reduction how, double *values, size_t count)
{
    if (how == REDUCE_SUM) {
        TRY(c->reduce(c, REDUCE_SUM, values, count));
        return STATUS_OK;
    }
    /* Transports differ in what the maximum of a NaN is, so it travels on its own. */
    for (size_t i = 0; i < count; i++) {
        double pair[2] = {isnan(values[i]) ? -INFINITY : values[i], isnan(values[i]) ? 1 : 0};
        TRY(c->reduce(c, REDUCE_MAX, pair, 2));
        values[i] = pair[1] > 0 ? (double)NAN : pair[0];
    }
    return STATUS_OK;
}

enum status comm_agree(const struct comm *c, enum status mine)
{
    /* The largest is the lowest failed rank's: its distance from the end first, then its status. */
    double worst = mine ? (double)(c->size - c->rank) * STATUS_COUNT + (double)mine : 0;
    enum status st = c->reduce(c, REDUCE_MAX, &worst, 1);
    if (mine) return mine;
    TRY(st);
    if (!(worst > 0)) return STATUS_OK;
    int first = c->size - (int)worst / STATUS_COUNT;
    enum status theirs = (enum status)((int)worst % STATUS_COUNT);
    return status_fail(theirs, __FILE__, __LINE__, "rank %d failed: %s", first,
                       status_text(theirs));
}
