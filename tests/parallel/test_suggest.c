// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "parallel/suggest.h"

static bool divides(int64_t value, const void *n) { return *(const int64_t *)n % value == 0; }
static bool never(int64_t value, const void *n) { return (void)value, (void)n, false; }

TEST(suggest_names_the_closest_valid_values_on_both_sides)
{
    int64_t n = 32;
    CHECK(!strcmp(suggest_values(3, 1, 100, divides, &n).text, "; try 2 or 4"));
    CHECK(!strcmp(suggest_values(3, 1, 100, divides, &n).values, "2 or 4"));
    CHECK(!strcmp(suggest_values(33, 1, 100, divides, &n).text, "; try 32"));
    CHECK(!strcmp(suggest_values(1, 1, 100, divides, &n).text, "; try 2"));
}

TEST(suggest_stays_within_bounds_and_distance)
{
    int64_t n = 32;
    CHECK(!strcmp(suggest_values(3, 3, 100, divides, &n).text, "; try 4"));
    CHECK(!strcmp(suggest_values(3, 1, 3, divides, &n).text, "; try 2"));
    CHECK(!strcmp(suggest_values(500, 1, 20, divides, &n).text, "; try 16"));
    CHECK(!strcmp(suggest_values(-7, 2, 20, divides, &n).text, "; try 2"));
    CHECK(!strcmp(suggest_values(5, 1, INT64_MAX, never, &n).text, ""));
    CHECK(!strcmp(suggest_values(5, 1, INT64_MAX, never, &n).values, ""));
}
