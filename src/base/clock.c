// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <time.h>

static double read_clock(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double clock_monotonic_s(void) { return read_clock(CLOCK_MONOTONIC); }
double clock_wall_s(void) { return read_clock(CLOCK_REALTIME); }
