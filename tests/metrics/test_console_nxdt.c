// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "metrics/console_nxdt.h"

static bool shows(double value, const char *want)
{
    struct text t = {0};
    console_nxdt_number(&t, value);
    bool same = !strcmp(t.data, want);
    if (!same) print_message("%g: %s, expected %s\n", value, t.data, want);
    text_release(&t);
    return same;
}

TEST(nxdt_numbers_are_the_shorter_form_padded)
{
    CHECK(shows(13.4, "13.40") && shows(1, "1.000") && shows(2048, "2048.0"));
    CHECK(shows(5536, "5536.0") && shows(7.496251874e-9, "7.5e-9") && shows(0, "0.000"));
    CHECK(shows(13.399999618530273, "13.40") && shows(0.25, "0.250") && shows(123.456, "123.0"));
    CHECK(shows(1.5e-5, "1.5e-5") && shows(33554432, "3.36e+7"));
    CHECK(shows(NAN, "nan.0") && shows(-NAN, "nan.0"));
    CHECK(shows(INFINITY, "inf.0") && shows(-INFINITY, "-inf."));
}

TEST(nxdt_line_is_the_lightning_progress_bar)
{
    struct text t = {0};
    struct metrics_options o = {.last_step = 91};
    struct step_metrics s = {.step = 2,
                             .rows_done = 2048,
                             .loss = 13.4,
                             .lr = 7.496251874e-9,
                             .parameter_norm = 5536,
                             .grad_norm = 3.25};
    struct derived_metrics d = {.step_seconds = 321.89, .step_rows = 1024};
    struct run_progress p = {.elapsed_s = 965, .remaining_s = 28326, .best_throughput = 3.5};
    console_nxdt_step(&t, &o, &s, &d, &p);
    CHECK(!strcmp(t.data, "Epoch 0:   2%|▏         | 2/91 [16:05<7:52:06, 321.89s/it, loss=13.4, "
                          "v_num=0, reduced_train_loss=13.40, lr=7.5e-9, parameter_norm=5536.0, "
                          "gradient_norm=3.250, global_step=1.000, consumed_samples=2048.0, "
                          "throughput=3.180, throughput_peak=3.500]"));
    text_release(&t);
}

TEST(nxdt_line_shows_every_nan_without_a_sign)
{
    struct text t = {0};
    struct metrics_options o = {.last_step = 4};
    struct step_metrics s = {.step = 4, .loss = copysign(NAN, -1)};
    struct derived_metrics d = {.step_seconds = 1};
    console_nxdt_step(&t, &o, &s, &d, &(struct run_progress){.elapsed_s = 1});
    CHECK(strstr(t.data, ", loss=nan, v_num=0, reduced_train_loss=nan.0, "));
    text_release(&t);
}

TEST(nxdt_bar_is_full_at_the_end_and_shows_iterations_per_second)
{
    struct text t = {0};
    struct metrics_options o = {.last_step = 4};
    struct step_metrics s = {.step = 4};
    struct derived_metrics d = {.step_seconds = 0.25, .step_rows = 8};
    console_nxdt_step(&t, &o, &s, &d, &(struct run_progress){.elapsed_s = 1});
    CHECK(!strncmp(t.data, "Epoch 0: 100%|██████████| 4/4 [00:01<00:00,  4.00it/s, ", 73));
    CHECK(strstr(t.data, "throughput=32.00, throughput_peak=32.00]"));
    text_release(&t);
}
