// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "metrics/figures.h"

static const struct metrics_options two_ranks = {.num_ranks = 2,
                                                 .flops_per_token = 3e9,
                                                 .peak_flops = 6e12,
                                                 .memory_total_bytes = 4.0 * (1 << 30)};

TEST(figures_are_per_rank_and_per_step)
{
    struct step_metrics s = {
        .tokens = 8000, .steps = 4, .seconds = 5, .data_seconds = 0.5, .memory_bytes = 1 << 30};
    struct figures f = figures_make(&two_ranks, &s);
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

TEST(figures_without_time_or_peak_have_no_rates)
{
    struct metrics_options unknown = {.num_ranks = 1, .flops_per_token = 1};
    struct step_metrics s = {.tokens = 8000, .memory_bytes = 5};
    struct figures f = figures_make(&unknown, &s);
    CHECK(f.tokens_per_second == 0 && f.step_seconds == 0 && f.data_share == 0);
    CHECK(isnan(f.mfu) && f.memory_share == 0);
}

TEST(pace_forgets_the_warm_up)
{
    struct pace p = {0};
    CHECK(pace_left_s(&p, 0, 100) == 0);
    pace_add(&p, 30, 1);
    CHECK_NEAR(pace_left_s(&p, 1, 101), 3000, 1e-12);
    pace_add(&p, 18, 9);
    CHECK_NEAR(pace_left_s(&p, 10, 110), 200, 1e-12);
    pace_add(&p, 40, 10); /* 4 s a step: the mean moves part of the way */
    CHECK_NEAR(pace_left_s(&p, 20, 30), 26, 1e-12);
}

TEST(pace_is_not_moved_by_empty_intervals_and_ends_at_nothing_left)
{
    struct pace p = {0};
    pace_add(&p, 2, 2);
    pace_add(&p, 0, 1);
    pace_add(&p, -1, 1);
    pace_add(&p, 1, 0);
    pace_add(&p, NAN, 1);
    CHECK_NEAR(pace_left_s(&p, 0, 7), 7, 1e-12);
    CHECK(pace_left_s(&p, 7, 7) == 0 && pace_left_s(&p, 9, 7) == 0);
}
