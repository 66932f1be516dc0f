// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/exact_sum.h"
#include "base/rng.h"

#include <float.h>

static double sum_of(const double *x, size_t n)
{
    struct exact_sum s = {0};
    for (size_t i = 0; i < n; i++) exact_sum_add(&s, x[i]);
    return exact_sum_value(&s);
}

/* Any finite double, of either sign. */
static double random_double(uint64_t i)
{
    union {
        uint64_t bits;
        double x;
    } u = {.bits = rng_bits(1, RNG_TEST, 0, i).bits[0] * UINT64_C(0x9E3779B97F4A7C15)};
    u.bits ^= (uint64_t)rng_bits(1, RNG_TEST, 1, i).bits[1] << 32;
    return isfinite(u.x) ? u.x : 1;
}

TEST(exact_sum_loses_no_term)
{
    CHECK(sum_of((double[]){1e300, 1, -1e300}, 3) == 1);
    CHECK(sum_of((double[]){DBL_TRUE_MIN, DBL_MAX, -DBL_MAX}, 3) == DBL_TRUE_MIN);
    CHECK(sum_of((double[]){-DBL_MIN, 3, -3}, 3) == -DBL_MIN);
    CHECK(sum_of((double[]){0.1, 0.2, -0.1, -0.2}, 4) == 0);
    CHECK(sum_of((double[]){-1e-30, -2.5, 1e17, -1e17}, 4) == -2.5);
    CHECK(sum_of((double[]){DBL_MAX, DBL_MAX, -DBL_MAX}, 3) == DBL_MAX);
    CHECK(sum_of(NULL, 0) == 0);
}

TEST(exact_sum_of_integers_is_their_sum)
{
    struct exact_sum s = {0};
    int64_t want = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        int64_t x = (int64_t)rng_below(1 << 30, 2, RNG_TEST, 0, i) - (1 << 29);
        want += x;
        exact_sum_add(&s, (double)x);
        if (i % 1000 == 0) CHECK(exact_sum_value(&s) == (double)want);
    }
    CHECK(exact_sum_value(&s) == (double)want);
}

/* Also of terms that other ranks hold: their integers are added. */
TEST(exact_sum_does_not_depend_on_the_order_and_division_of_its_terms)
{
    enum { N = 3000 };
    struct exact_sum straight = {0}, back = {0}, all = {0};
    for (uint64_t i = 0; i < N; i++) exact_sum_add(&straight, random_double(i));
    for (uint64_t i = N; i-- > 0;) exact_sum_add(&back, random_double(i));
    double want = exact_sum_value(&straight);
    CHECK(isfinite(want) && exact_sum_value(&back) == want);
    for (uint64_t rank = 0; rank < 7; rank++) {
        struct exact_sum own = {0};
        for (uint64_t i = rank; i < N; i += 7) exact_sum_add(&own, random_double(i));
        exact_sum_carry(&own);
        for (int k = 0; k < EXACT_SUM_DIGITS - 1; k++)
            CHECK(own.ints[k] >= 0 && own.ints[k] < INT64_C(1) << 32);
        for (int k = 0; k < EXACT_SUM_INTS; k++) all.ints[k] += own.ints[k];
    }
    CHECK(exact_sum_value(&all) == want);
}

TEST(exact_sum_of_infinities_and_nan_is_that_of_ieee)
{
    const double inf = (double)INFINITY;
    CHECK(sum_of((double[]){1, inf, 2}, 3) == inf);
    CHECK(sum_of((double[]){-inf, 1e300}, 2) == -inf);
    CHECK(isnan(sum_of((double[]){inf, -inf}, 2)));
    CHECK(isnan(sum_of((double[]){1, (double)NAN, inf}, 3)));
    CHECK(sum_of((double[]){DBL_MAX, DBL_MAX}, 2) == inf);
}
