// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "metrics/derived_metrics.h"

static const struct metrics_options two_ranks = {.num_ranks = 2,
                                                 .row_tokens = 250,
                                                 .flops_per_token = 3e9,
                                                 .peak_flops = 6e12,
                                                 .memory_total_bytes = 4.0 * (1 << 30)};

TEST(derived_metrics_are_per_rank_and_per_step)
{
    struct step_metrics s = {
        .tokens = 8000, .steps = 4, .seconds = 5, .data_seconds = 0.5, .memory_bytes = 1 << 30};
    struct derived_metrics d = derived_metrics_compute(&two_ranks, &s);
    CHECK_NEAR(d.tokens_per_second, 1600, 1e-12);
    CHECK_NEAR(d.tokens_per_second_per_rank, 800, 1e-12);
    CHECK_NEAR(d.tflops_per_rank, 2.4, 1e-12);
    CHECK_NEAR(d.mfu, 0.4, 1e-12);
    CHECK_NEAR(d.step_seconds, 1.25, 1e-12);
    CHECK_NEAR(d.data_seconds, 0.125, 1e-12);
    CHECK_NEAR(d.data_share, 0.1, 1e-12);
    CHECK(d.step_rows == 8);
    CHECK_NEAR(d.memory_gib, 1, 1e-12);
    CHECK_NEAR(d.memory_share, 0.25, 1e-12);
}

TEST(derived_metrics_have_no_rates_without_time_or_peak)
{
    struct metrics_options unknown = {.num_ranks = 1, .flops_per_token = 1};
    struct step_metrics s = {.tokens = 8000, .memory_bytes = 5};
    struct derived_metrics d = derived_metrics_compute(&unknown, &s);
    CHECK(d.tokens_per_second == 0 && d.step_seconds == 0 && d.data_share == 0);
    CHECK(d.step_rows == 0);
    CHECK(isnan(d.mfu) && d.memory_share == 0);
}
