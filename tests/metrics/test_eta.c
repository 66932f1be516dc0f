// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "metrics/eta.h"

TEST(eta_drops_the_warm_up)
{
    struct eta e = {0};
    CHECK(eta_remaining_s(&e, 0, 100) == 0);
    eta_add(&e, 30, 1);
    CHECK_NEAR(eta_remaining_s(&e, 1, 101), 3000, 1e-12);
    eta_add(&e, 18, 9);
    CHECK_NEAR(eta_remaining_s(&e, 10, 110), 200, 1e-12);
    eta_add(&e, 40, 10); /* 4 s per row: the average moves part of the way */
    CHECK_NEAR(eta_remaining_s(&e, 20, 30), 26, 1e-12);
}

TEST(eta_ignores_empty_intervals_and_ends_at_zero)
{
    struct eta e = {0};
    eta_add(&e, 2, 2);
    eta_add(&e, 0, 1);
    eta_add(&e, -1, 1);
    eta_add(&e, 1, 0);
    eta_add(&e, NAN, 1);
    CHECK_NEAR(eta_remaining_s(&e, 0, 7), 7, 1e-12);
    CHECK(eta_remaining_s(&e, 7, 7) == 0 && eta_remaining_s(&e, 9, 7) == 0);
}
