// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "parallel/nearest.h"

static bool divides(int64_t value, const void *n) { return *(const int64_t *)n % value == 0; }
static bool never(int64_t value, const void *n) { return (void)value, (void)n, false; }

TEST(nearest_names_the_right_values_on_both_sides)
{
    int64_t n = 32;
    CHECK(!strcmp(nearest_find(3, 1, 100, divides, &n).text, ": 2 or 4 would"));
    CHECK(!strcmp(nearest_find(33, 1, 100, divides, &n).text, ": 32 would"));
    CHECK(!strcmp(nearest_find(1, 1, 100, divides, &n).text, ": 2 would"));
}

TEST(nearest_stays_within_its_bounds_and_gives_up_in_the_end)
{
    int64_t n = 32;
    CHECK(!strcmp(nearest_find(3, 3, 100, divides, &n).text, ": 4 would"));
    CHECK(!strcmp(nearest_find(3, 1, 3, divides, &n).text, ": 2 would"));
    CHECK(!strcmp(nearest_find(500, 1, 20, divides, &n).text, ": 16 would"));
    CHECK(!strcmp(nearest_find(-7, 2, 20, divides, &n).text, ": 2 would"));
    CHECK(!strcmp(nearest_find(5, 1, INT64_MAX, never, &n).text, ""));
}
