// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rng.h"
#include "plot/axis.h"

/* Whether the labels of all ticks, separated by spaces, equal `labels`. */
static bool ticks_are(double low, double high, int want, bool log, const char *labels)
{
    struct axis a;
    struct text t = {0};
    axis_fit(&a, low, high, (struct axis_style){want, 0, log});
    for (int i = 0; i < a.num_ticks; i++) {
        char label[AXIS_LABEL];
        axis_label(&a, a.ticks[i], label);
        text_addf(&t, "%s%s", i ? " " : "", label);
    }
    bool same = t.data && !strcmp(t.data, labels);
    if (!same) print_error("ticks: %s, expected: %s\n", t.data ? t.data : "", labels);
    text_release(&t);
    return same;
}

TEST(axis_ticks_are_round_numbers)
{
    CHECK(ticks_are(0, 10, 5, false, "0 2 4 6 8 10"));
    CHECK(ticks_are(1, 2000, 5, false, "500 1000 1500 2000"));
    CHECK(ticks_are(-1, 1, 4, false, "-1.0 -0.5 0 0.5 1.0"));
    CHECK(ticks_are(2.51, 2.58, 4, false, "2.52 2.54 2.56 2.58"));
}

TEST(axis_labels_shorten_large_and_small_numbers)
{
    CHECK(ticks_are(0, 100000, 5, false, "0 20k 40k 60k 80k 100k"));
    CHECK(ticks_are(0, 15000, 3, false, "0 5k 10k 15k"));
    CHECK(ticks_are(0, 2.5e7, 5, false, "0 5M 10M 15M 20M 25M"));
    CHECK(ticks_are(0, 3e10, 3, false, "0 10G 20G 30G"));
    CHECK(ticks_are(0, 3e-4, 3, false, "0 1e-4 2e-4 3e-4"));
    CHECK(ticks_are(0, 3e20, 3, false, "0 1e20 2e20 3e20"));
}

TEST(axis_logarithmic_ticks_follow_the_decades)
{
    CHECK(ticks_are(1, 100, 6, true, "1 2 5 10 20 50 100"));
    CHECK(ticks_are(1e-4, 1, 5, true, "1e-4 1e-3 0.01 0.1 1"));
    CHECK(ticks_are(1, 1e8, 4, true, "1 100 10k 1M 100M"));
    CHECK(ticks_are(2, 9, 4, true, "2 4 6 8"));
}

TEST(axis_widens_a_range_of_zero_width)
{
    struct axis a;
    const double values[] = {0, 5, -3, 1e-30, 1e20};
    for (int log = 0; log < 2; log++)
        for (size_t i = 0; i < 5; i++) {
            if (log && values[i] <= 0) continue;
            axis_fit(&a, values[i], values[i], (struct axis_style){5, 0, log});
            CHECK(a.low < values[i] && a.high > values[i] && a.num_ticks > 0);
            CHECK_NEAR(axis_position(&a, values[i]), 0.5, 1e-6);
        }
}

TEST(axis_pads_both_ends)
{
    struct axis a;
    axis_fit(&a, 0, 10, (struct axis_style){5, 0.1, false});
    CHECK_NEAR(a.low, -1, 1e-12);
    CHECK_NEAR(a.high, 11, 1e-12);
    axis_fit(&a, 1, 100, (struct axis_style){5, 0.5, true});
    CHECK_NEAR(a.low, 0.1, 1e-12);
    CHECK_NEAR(a.high, 1000, 1e-12);
}

TEST(axis_positions_are_linear_or_logarithmic_and_clamped)
{
    struct axis a;
    axis_fit(&a, 0, 10, (struct axis_style){5, 0, false});
    CHECK(axis_position(&a, 0) == 0 && axis_position(&a, 10) == 1);
    CHECK_NEAR(axis_position(&a, 2.5), 0.25, 1e-12);
    CHECK(axis_position(&a, -5) == 0 && axis_position(&a, 1e300) == 1);
    axis_fit(&a, 1, 10000, (struct axis_style){5, 0, true});
    CHECK_NEAR(axis_position(&a, 100), 0.5, 1e-12);
    CHECK(axis_position(&a, 0) == 0 && axis_position(&a, -1) == 0);
}

/* Ticks are few, ascending and inside the range, and labels fit. */
TEST(axis_invariants_hold_for_any_range)
{
    for (uint64_t i = 0; i < 20000; i++) {
        bool log = i & 1;
        double low = rng_normal(1, RNG_TEST, 0, i) *
                     pow(10, (double)rng_below(614, 1, RNG_TEST, 1, i) - 307);
        double high = low + fabs(rng_normal(1, RNG_TEST, 2, i)) *
                                pow(10, (double)rng_below(614, 1, RNG_TEST, 3, i) - 307);
        if (log) low = fabs(low), high = low + fabs(high);
        if (i % 97 == 0) low = log ? 5e-324 : -1.7e308;
        if (i % 89 == 0) high = 1.7e308;
        int want = 2 + (int)(i % 11);
        struct axis a;
        axis_fit(&a, low, high, (struct axis_style){want, 0.04, log});
        CHECK(a.low < a.high && isfinite(a.low) && isfinite(a.high));
        CHECK(a.num_ticks <= AXIS_TICKS && a.num_ticks >= (log ? 1 : 2));
        for (int k = 0; k < a.num_ticks; k++) {
            char label[AXIS_LABEL];
            double slack = 1e-5 * (a.high - a.low);
            CHECK(a.ticks[k] >= a.low - slack && a.ticks[k] <= a.high + slack);
            CHECK(!k || a.ticks[k] > a.ticks[k - 1]);
            axis_label(&a, a.ticks[k], label);
            CHECK(strlen(label) > 0 && strlen(label) < AXIS_LABEL - 1);
        }
    }
}
