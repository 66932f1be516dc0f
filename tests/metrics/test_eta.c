// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "metrics/eta.h"

TEST(eta_drops_the_warm_up)
{
    struct eta e = {0};
    CHECK(isnan(eta_remaining_s(&e, 0, 100)));
    eta_add(&e, 30, 1);
    CHECK(isnan(eta_remaining_s(&e, 1, 101)));
    eta_add(&e, 18, 9);
    CHECK_NEAR(eta_remaining_s(&e, 10, 110), 200, 1e-12);
}

TEST(eta_is_a_median_of_the_last_intervals)
{
    struct eta e = {0};
    eta_add(&e, 30, 1);
    for (int i = 0; i < 3; i++) eta_add(&e, 20, 10);
    eta_add(&e, 400, 10); /* a neighbor */
    CHECK_NEAR(eta_remaining_s(&e, 41, 141), 200, 1e-12);
    for (int i = 0; i < 5; i++) eta_add(&e, 30, 10); /* from here on 3 s per row */
    CHECK_NEAR(eta_remaining_s(&e, 91, 191), 300, 1e-12);
}

/* 1,000 steps of 2 rows and 0.5 s; a validation of 5 s every 10 steps; a first step of 20 s. */
TEST(eta_is_right_from_the_second_line_on)
{
    struct eta e = {0};
    double total = 20 + 999 * 0.5 + 100 * 5, now = 0;
    for (int step = 1; step <= 1000; step++) {
        now += step == 1 ? 20 : 0.5;
        if (step == 1) eta_add(&e, 20, 2);
        if (step == 10) eta_add(&e, 9 * 0.5, 18);
        if (step > 10 && step % 10 == 0) eta_add(&e, 10 * 0.5, 20);
        if (step % 10 == 0) now += 5, eta_add_pause(&e, 5);
        double left = eta_remaining_s(&e, 2 * step, 2000);
        if (step >= 10 && step % 10 == 0 && step < 1000) CHECK_NEAR(left, total - now, 0.3 * left);
        if (step >= 500 && step % 10 == 0 && step < 1000)
            CHECK_NEAR(left, total - now, 0.02 * left);
    }
}

TEST(eta_ignores_empty_intervals_and_ends_at_zero)
{
    struct eta e = {0};
    eta_add(&e, 5, 1);
    eta_add(&e, 2, 2);
    eta_add(&e, 0, 1);
    eta_add(&e, -1, 1);
    eta_add(&e, 1, 0);
    eta_add(&e, NAN, 1);
    eta_add_pause(&e, NAN);
    CHECK_NEAR(eta_remaining_s(&e, 0, 7), 7, 1e-12);
    CHECK(eta_remaining_s(&e, 7, 7) == 0 && eta_remaining_s(&e, 9, 7) == 0);
}
