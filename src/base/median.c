// SPDX-License-Identifier: Apache-2.0
#include "base/median.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    int half = count / 2;
    return count % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}
