// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "optim/schedule.h"

static struct lr_scheduler_config config(enum lr_formula formula, int64_t warmup, double ratio,
                                         enum lr_decay type, double least)
{
    return (struct lr_scheduler_config){.warmup_steps = warmup,
                                        .decay_ratio = ratio,
                                        .decay_type = type,
                                        .min_lr_factor = least,
                                        .formula = formula};
}

static struct schedule_step step_of(int64_t total_steps, int64_t rows, int64_t step)
{
    return (struct schedule_step){step, total_steps, (step - 1) * rows, rows};
}

static double lr(const struct lr_scheduler_config *c, double peak_lr, int64_t total_steps,
                 int64_t rows, int64_t step)
{
    const struct schedule_step now = step_of(total_steps, rows, step);
    return schedule_lr(c, peak_lr, &now);
}

static double at(const struct lr_scheduler_config *c, int64_t step)
{
    return lr(c, 1, 10, 4, step);
}

TEST(torchtitan_warms_up_then_decays_to_one_step_above_the_end)
{
    struct lr_scheduler_config c = config(LR_FORMULA_torchtitan, 2, -1, LR_DECAY_linear, 0);
    static const double want[] = {0.5,    1,      1,      7 / 8., 6 / 8.,
                                  5 / 8., 4 / 8., 3 / 8., 2 / 8., 1 / 8.};
    for (int i = 0; i < 10; i++) CHECK_NEAR(at(&c, i + 1), want[i], 1e-15);
    CHECK(at(&c, 11) == 0 && at(&c, 100) == 0);
    c.min_lr_factor = 0.1;
    CHECK_NEAR(at(&c, 10), 0.1 + 0.9 / 8, 1e-15);
    CHECK_NEAR(at(&c, 1), 0.5, 1e-15); /* warmup starts from zero, not from the minimum rate */
}

TEST(torchtitan_decays_by_sqrt_or_cosine_after_a_plateau)
{
    struct lr_scheduler_config c = config(LR_FORMULA_torchtitan, 2, 0.4, LR_DECAY_sqrt, 0);
    for (int step = 2; step <= 7; step++) CHECK(at(&c, step) == 1);
    CHECK_NEAR(at(&c, 8), 1 - sqrt(0.25), 1e-15);
    CHECK_NEAR(at(&c, 10), 1 - sqrt(0.75), 1e-15);
    c.decay_type = LR_DECAY_cosine;
    CHECK_NEAR(at(&c, 9), 0.5, 1e-15);
    CHECK_NEAR(at(&c, 8), 0.5 * (1 + sqrt(0.5)), 1e-15);
    c.decay_ratio = 0; /* constant after warmup */
    CHECK(at(&c, 3) == 1 && at(&c, 10) == 1 && at(&c, 1000) == 1);
    c.decay_ratio = 0.25; /* 2.5 steps: ties to even, 2 */
    CHECK(at(&c, 9) == 1);
    CHECK_NEAR(at(&c, 10), 0.5, 1e-15);
}

TEST(torchtitan_shortens_warmup_and_decay_that_do_not_fit)
{
    struct lr_scheduler_config c = config(LR_FORMULA_torchtitan, 6, 1, LR_DECAY_linear, 0);
    CHECK(at(&c, 6) == 1 && at(&c, 7) == 1);
    CHECK_NEAR(at(&c, 8), 0.75, 1e-15);
    c = config(LR_FORMULA_torchtitan, 200, -1, LR_DECAY_linear, 0);
    CHECK_NEAR(at(&c, 1), 0.1, 1e-15);
    CHECK(at(&c, 10) == 1 && at(&c, 12) == 1);
}

TEST(frontier_warms_up_over_one_more_step)
{
    struct lr_scheduler_config c = config(LR_FORMULA_frontier, 4, -1, LR_DECAY_linear, 0);
    static const double want[] = {1 / 5., 2 / 5., 3 / 5., 4 / 5., 1,
                                  5 / 6., 4 / 6., 3 / 6., 2 / 6., 1 / 6.};
    for (int i = 0; i < 10; i++) CHECK_NEAR(at(&c, i + 1), want[i], 1e-15);
    CHECK(at(&c, 11) == 0 && at(&c, 50) == 0);
}

TEST(nxdt_cosine_starts_at_the_published_rate)
{
    struct lr_scheduler_config c =
        config(LR_FORMULA_nxdt, 2000, -1, LR_DECAY_cosine, 1e-6 / 1.5e-5);
    CHECK_NEAR(lr(&c, 1.5e-5, 10000, 1024, 1) / 7.496251874e-9, 1, 1e-9);
    CHECK_NEAR(lr(&c, 1.5e-5, 10000, 1024, 2001) / 1.5e-5, 1, 1e-12);
    CHECK_NEAR(lr(&c, 1.5e-5, 10000, 1024, 6001) / 8e-6, 1, 1e-12); /* halfway */
    CHECK_NEAR(lr(&c, 1.5e-5, 10000, 1024, 10001) / 1e-6, 1, 1e-9);
    CHECK_NEAR(lr(&c, 1.5e-5, 10000, 1024, 99999) / 1e-6, 1, 1e-9);
    c.warmup_steps = 0;
    CHECK(lr(&c, 1, 10000, 1024, 1) == 1);
}

TEST(schedule_may_be_longer_than_the_run)
{
    struct lr_scheduler_config c = config(LR_FORMULA_torchtitan, 2, -1, LR_DECAY_linear, 0);
    c.total_steps = 100;
    CHECK_NEAR(at(&c, 10), 1 - 7 / 98., 1e-15);
}

TEST(megatron_starts_at_zero_and_ends_at_the_minimum_rate)
{
    struct lr_scheduler_config c = config(LR_FORMULA_megatron, 4, -1, LR_DECAY_linear, 0.1);
    static const double want[] = {0, 0.25, 0.5, 0.75, 1};
    for (int i = 0; i < 5; i++) CHECK_NEAR(at(&c, i + 1), want[i], 1e-15);
    CHECK_NEAR(at(&c, 8), 0.1 + 0.9 / 2, 1e-15);
    CHECK_NEAR(at(&c, 11), 0.1, 1e-15);
    CHECK(at(&c, 12) == 0.1 && at(&c, 99) == 0.1);
    c.decay_type = LR_DECAY_cosine;
    CHECK_NEAR(at(&c, 6), 0.1 + 0.9 * 0.5 * (1 + cos(3.14159265358979 / 6)), 1e-12);
    c.warmup_steps = 0;
    CHECK(at(&c, 1) == 1); /* the ROCm scripts: no warmup */
    c = config(LR_FORMULA_megatron, 10, -1, LR_DECAY_linear,
               0); /* Hugging Face's linear schedule */
    CHECK_NEAR(lr(&c, 1.5e-4, 5000, 64, 11), 1.5e-4, 1e-18);
    CHECK_NEAR(lr(&c, 1.5e-4, 5000, 64, 2506), 1.5e-4 * 2495 / 4990, 1e-16);
}

TEST(megatron_counts_samples_if_set)
{
    struct lr_scheduler_config c = config(LR_FORMULA_megatron, 0, -1, LR_DECAY_cosine, 0);
    c.warmup_samples = 10, c.total_samples = 50; /* 4 per step: 2.5 and 12.5 steps */
    CHECK_NEAR(at(&c, 3), 0.8, 1e-15);
    CHECK_NEAR(at(&c, 4), 0.5 * (1 + cos(3.14159265358979 * 2 / 40)), 1e-12);
    CHECK(at(&c, 14) == 0 && at(&c, 13) > 0);
    c = config(LR_FORMULA_megatron, 0, -1, LR_DECAY_linear, 1e-5 / 1.5e-4);
    c.warmup_samples = 3906252, c.total_samples = 1949218748;
    CHECK_NEAR(lr(&c, 1.5e-4, 1, 128, 30518), 1.5e-4 * 30517 * 128 / 3906252, 1e-15);
}

TEST(megatron_counts_the_rows_done_during_a_batch_ramp)
{
    struct lr_scheduler_config c = config(LR_FORMULA_megatron, 0, -1, LR_DECAY_linear, 0);
    c.warmup_samples = 8, c.total_samples = 28;
    static const struct {
        int64_t done;
        double rate;
    } steps[] = {{0, 0}, {2, 0.25}, {6, 0.75}, {12, 0.8}, {20, 0.4}, {28, 0}};
    for (int i = 0; i < 6; i++) {
        struct schedule_step now = {i + 1, 6, steps[i].done, 8};
        CHECK_NEAR(schedule_lr(&c, 1, &now), steps[i].rate, 1e-15);
        now.total_steps = now.rows = 1; /* neither matters */
        CHECK_NEAR(schedule_lr(&c, 1, &now), steps[i].rate, 1e-15);
    }
}

TEST(megatron_decays_late_by_sqrt_or_not_at_all)
{
    struct lr_scheduler_config c = config(LR_FORMULA_megatron, 2, 0.4, LR_DECAY_sqrt, 0);
    for (int step = 3; step <= 7; step++) CHECK(at(&c, step) == 1);
    CHECK_NEAR(at(&c, 8), 1 - sqrt(0.25), 1e-15);
    c.decay_type = LR_DECAY_exponential;
    CHECK_NEAR(at(&c, 9), 2 * pow(0.5, 0.5) - 1, 1e-15);
    c.decay_ratio = 0;
    CHECK(at(&c, 3) == 1 && at(&c, 1000) == 1);
    c = config(LR_FORMULA_megatron, 4, -1, LR_DECAY_inverse_sqrt, 0.7);
    CHECK_NEAR(at(&c, 6), sqrt(4 / 5.), 1e-15);
    CHECK(at(&c, 10) == 0.7 && at(&c, 12) == 0.7);
}

TEST(the_decoupled_rate_has_a_minimum_of_its_own)
{
    struct lr_scheduler_config c = {.formula = LR_FORMULA_megatron,
                                    .decay_type = LR_DECAY_cosine,
                                    .decay_ratio = -1,
                                    .min_lr_factor = 0.1,
                                    .decoupled_min_lr_factor = 0.5};
    CHECK_NEAR(lr(&c, 1e-3, 10, 4, 11), 1e-4, 1e-18);
    const struct schedule_step last = step_of(10, 4, 11), first = step_of(10, 4, 1);
    CHECK_NEAR(schedule_decoupled_lr(&c, 1e-2, &last), 5e-3, 1e-17);
    CHECK_NEAR(schedule_decoupled_lr(&c, 1e-2, &first), 1e-2, 1e-17);
}
