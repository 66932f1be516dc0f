// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"

#include <time.h>

TEST(monotonic_clock_counts_seconds_and_never_goes_back)
{
    double begin = clock_monotonic_s(), before = begin;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    for (int i = 0; i < 1000; i++) {
        double now = clock_monotonic_s();
        CHECK(now >= before);
        before = now;
    }
    CHECK(before - begin >= 0.02 && before - begin < 20);
}

TEST(wall_clock_agrees_with_time) { CHECK(fabs(clock_wall_s() - (double)time(NULL)) < 5); }
