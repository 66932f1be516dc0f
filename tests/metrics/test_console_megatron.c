// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "metrics/console_megatron.h"

static const struct metrics_options run = {
    .last_step = 12, .num_ranks = 8, .row_tokens = 8192, .causal_flops_per_token = 51.47e9};
static const struct step_metrics step_7 = {.step = 7,
                                           .rows = 128,
                                           .rows_done = 640,
                                           .loss = 10.8512,
                                           .grad_norm = 1.2346,
                                           .lr = 1e-4,
                                           .steps = 1,
                                           .skipped = 2};

static struct derived_metrics derived_at(double ms)
{
    return (struct derived_metrics){.step_seconds = ms / 1e3,
                                    .tokens_per_second_per_rank = 128 * 8192 / 8 / (ms / 1e3),
                                    .step_rows = 128,
                                    .memory_share = 0.5462};
}

TEST(megatron_line_has_the_fields_that_scripts_parse)
{
    struct text t = {0};
    struct derived_metrics d = derived_at(10000);
    console_megatron_step(&t, &run, &step_7, &d, &(struct run_progress){.wall_s = 1700000000});
    CHECK(!strncmp(t.data, " [2023-11-1", 11));
    CHECK(
        !strcmp(strchr(t.data, ']'),
                "] iteration        7/      12 | consumed samples:          640 | elapsed time per "
                "iteration (ms): 10000.0 | mem usages: 0.5462 | throughput per GPU "
                "(TFLOP/s/GPU): 674.6 | learning rate: 1.000000E-04 | global batch size:   128 | "
                "lm loss: 1.085120E+01 | loss scale: 1.0 | grad norm: 1.235 | number of skipped "
                "iterations:   2 | number of nan iterations:   0 |"));
    text_release(&t);
}

TEST(megatron_validation_is_framed_by_dashes)
{
    struct text t = {0};
    console_megatron_validation(&t, 5000, 2.0);
    static const char want[] = " validation loss at iteration 5000 | lm loss value: 2.000000E+00 | "
                               "lm loss PPL: 7.389056E+00 | \n";
    const char *line = strchr(t.data, '\n') + 1, *last = strrchr(t.data, '\n') + 1;
    CHECK(!strncmp(line, want, sizeof want - 1));
    CHECK(strspn(t.data, "-") == strspn(last, "-"));
    CHECK(strspn(t.data, "-") == (size_t)(last - line));
    text_clear(&t);
    console_megatron_validation(&t, 1, 50);
    CHECK(strstr(t.data, "PPL: 4.851652E+08")); /* at most e^20 */
    text_release(&t);
}

TEST(megatron_summary_skips_the_first_two_lines_and_the_last)
{
    static const double ms[] = {90000, 50000, 10000, 20000, 40000, 70000};
    struct megatron_means means = {0};
    struct text t = {0};
    for (int i = 0; i < 6; i++) {
        struct derived_metrics d = derived_at(ms[i]);
        console_megatron_summary(&t, &means, &run);
        CHECK(!t.len == (i < 4));
        text_clear(&t);
        console_megatron_add(&means, &run, &step_7, &d);
    }
    console_megatron_summary(&t, &means, &run);
    double mean = (10000 + 20000 + 40000) / 3.0, got[4];
    CHECK(sscanf(t.data,
                 "throughput per GPU: %lf\nelapsed time per iteration: %lf\ntokens/GPU/s: %lf\n"
                 "mem usages: %lf",
                 got, got + 1, got + 2, got + 3) == 4);
    CHECK_NEAR(got[0], 674.6 * (1 + 0.5 + 0.25) / 3, 0.1);
    CHECK_NEAR(got[1], mean, 1e-4);
    CHECK_NEAR(got[2], 128 * 8192 / 8 * 1e3 / mean, 1e-4);
    CHECK_NEAR(got[3], 0.5462, 1e-9);
    text_release(&t);
}
