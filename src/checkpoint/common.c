// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/common.h"

#include "base/text.h"

#include <stdlib.h>

int common_size(const struct comm *c) { return c ? c->size : 1; }
int common_rank(const struct comm *c) { return c ? c->rank : 0; }

enum status common_agree(const struct comm *c, enum status mine)
{
    return common_size(c) > 1 ? comm_agree(c, mine) : mine;
}

/* Sums of doubles are exact here: all but one are 0. */
enum status common_number(const struct comm *c, int64_t *x)
{
    double value = common_leads(c) ? (double)*x : 0;
    if (common_size(c) > 1) TRY(comm_all_reduce(c, REDUCE_SUM, &value, 1));
    *x = (int64_t)value;
    return STATUS_OK;
}

enum status common_values(const struct comm *c, uint32_t *x, size_t count)
{
    if (common_size(c) == 1) return STATUS_OK;
    double *values = heap(count * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = x[i];
    enum status st = comm_all_reduce(c, REDUCE_SUM, values, count);
    for (size_t i = 0; i < count && !st; i++) x[i] = (uint32_t)values[i];
    free(values);
    return st;
}
