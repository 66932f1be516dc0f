// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "metrics/derived_metrics.h"

static const struct metrics_options two_ranks = {.num_ranks = 2,
                                                 .flops_per_token = 3e9,
                                                 .peak_flops = 6e12,
                                                 .memory_total_bytes = 4.0 * (1 << 30)};

TEST(derived_metrics_are_per_rank_and_per_step)
{
    struct step_metrics s = {
        .tokens = 8000, .steps = 4, .seconds = 5, .data_seconds = 0.5, .memory_bytes = 1 << 30};
    struct derived_metrics f = derived_metrics_compute(&two_ranks, &s);
    CHECK_NEAR(f.tokens_per_second, 1600, 1e-12);
    CHECK_NEAR(f.tokens_per_second_per_rank, 800, 1e-12);
    CHECK_NEAR(f.tflops_per_rank, 2.4, 1e-12);
    CHECK_NEAR(f.mfu, 0.4, 1e-12);
    CHECK_NEAR(f.step_seconds, 1.25, 1e-12);
    CHECK_NEAR(f.data_seconds, 0.125, 1e-12);
    CHECK_NEAR(f.data_share, 0.1, 1e-12);
    CHECK_NEAR(f.memory_gib, 1, 1e-12);
    CHECK_NEAR(f.memory_share, 0.25, 1e-12);
}

TEST(derived_metrics_have_no_rates_without_time_or_peak)
{
    struct metrics_options unknown = {.num_ranks = 1, .flops_per_token = 1};
    struct step_metrics s = {.tokens = 8000, .memory_bytes = 5};
    struct derived_metrics f = derived_metrics_compute(&unknown, &s);
    CHECK(f.tokens_per_second == 0 && f.step_seconds == 0 && f.data_share == 0);
    CHECK(isnan(f.mfu) && f.memory_share == 0);
}

TEST(eta_drops_the_warm_up)
{
    struct eta e = {0};
    CHECK(eta_remaining_s(&e, 0, 100) == 0);
    eta_add(&e, 30, 1);
    CHECK_NEAR(eta_remaining_s(&e, 1, 101), 3000, 1e-12);
    eta_add(&e, 18, 9);
    CHECK_NEAR(eta_remaining_s(&e, 10, 110), 200, 1e-12);
    eta_add(&e, 40, 10); /* 4 s per step: the average moves part of the way */
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
