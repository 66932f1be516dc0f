// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "metrics/console.h"

#include <time.h>

static const struct step_metrics step_10 = {.step = 10, .loss = 8.04913, .grad_norm = 1.40612};
static const struct derived_metrics typical = {.tokens_per_second_per_rank = 7069.4,
                                               .tflops_per_rank = 12.51,
                                               .mfu = 0.312,
                                               .memory_gib = 1.2,
                                               .memory_share = 0.05};

static bool thousands(double value, const char *want)
{
    struct text t = {0};
    console_thousands(&t, value);
    bool same = !strcmp(t.data, want);
    text_release(&t);
    return same;
}

static bool lasts(double seconds, const char *want)
{
    struct text t = {0};
    console_duration(&t, seconds);
    bool same = !strcmp(t.data, want);
    text_release(&t);
    return same;
}

/* Formats a step without the clock at the end, which depends on the time zone. */
static void line_of(struct text *t, const struct step_metrics *s, const struct derived_metrics *d,
                    double left_s, bool color)
{
    text_clear(t);
    struct run_progress p = {.remaining_s = left_s, .wall_s = 1700000000};
    console_step(t, s, d, &p, color);
    char *clock = strstr(t->data, " (");
    if (clock) *clock = 0;
}

TEST(console_line_is_torchtitans_followed_by_the_eta)
{
    struct text t = {0};
    line_of(&t, &step_10, &typical, 723.4, false);
    CHECK(!strcmp(t.data, "step: 10  loss:  8.04913  grad_norm:  1.4061  memory:  1.20GiB(5.00%)"
                          "  tps: 7,069  tflops: 12.51  mfu: 31.20%  eta: 12m03s"));
    text_release(&t);
}

TEST(console_brief_line_fits_80_columns)
{
    struct step_metrics large = {.step = 1234567, .loss = 12.98962, .grad_norm = 12345.6};
    struct derived_metrics d = typical;
    struct run_progress p = {.remaining_s = 723.4, .wall_s = 1700000000};
    struct text t = {0};
    console_step_brief(&t, &step_10, &typical, &p, false);
    CHECK(!strcmp(t.data, "step 10  loss 8.04913  grad 1.41  tps 7,069  mfu 31.2%  eta 12m03s"));
    text_clear(&t);
    d.tokens_per_second_per_rank = 123456;
    p.remaining_s = 99 * 86400;
    console_step_brief(&t, &large, &d, &p, false);
    CHECK(t.len < 80);
    d.mfu = (double)NAN;
    text_clear(&t);
    console_step_brief(&t, &step_10, &d, &p, false);
    CHECK(!strstr(t.data, "mfu"));
    text_release(&t);
}

TEST(console_line_aligns_small_and_non_finite_values)
{
    struct text t = {0};
    struct step_metrics s = {.step = 1, .loss = NAN, .grad_norm = INFINITY};
    struct derived_metrics d = {.mfu = NAN, .tflops_per_rank = 1234.5};
    line_of(&t, &s, &d, 0, false);
    CHECK(!strcmp(t.data, "step:  1  loss:      nan  grad_norm:     inf  memory:  0.00GiB(0.00%)"
                          "  tps: 0  tflops: 1,234.50  mfu: N/A  eta: 0m00s"));
    text_release(&t);
}

TEST(console_clock_shows_time_weekday_or_date)
{
    struct text t = {0};
    char want[64];
    const double left[] = {3600, 2 * 86400, 60 * 86400.0};
    const char *format[] = {" (%H:%M)", " (%a %H:%M)", " (%Y-%m-%d)"};
    for (int i = 0; i < 3; i++) {
        time_t then = (time_t)(1700000000 + left[i]);
        struct tm local;
        localtime_r(&then, &local);
        strftime(want, sizeof want, format[i], &local);
        text_clear(&t);
        struct run_progress p = {.remaining_s = left[i], .wall_s = 1700000000};
        console_step(&t, &step_10, &typical, &p, false);
        CHECK(t.len > strlen(want) && !strcmp(t.data + t.len - strlen(want), want));
    }
    text_clear(&t);
    struct run_progress p = {.remaining_s = INFINITY, .wall_s = 1700000000};
    console_step(&t, &step_10, &typical, &p, false);
    CHECK(strstr(t.data, "eta: ?") && !strstr(t.data, "? ("));
    text_release(&t);
}

TEST(console_colors_only_add_escape_codes)
{
    struct text plain = {0}, painted = {0}, bare = {0};
    line_of(&plain, &step_10, &typical, 60, false);
    line_of(&painted, &step_10, &typical, 60, true);
    CHECK(!strchr(plain.data, '\033') && strchr(painted.data, '\033'));
    for (const char *at = painted.data; *at; at++)
        if (*at == '\033')
            at = strchr(at, 'm');
        else
            text_add(&bare, at, 1);
    CHECK(!strcmp(bare.data, plain.data));
    text_release(&plain);
    text_release(&painted);
    text_release(&bare);
}

TEST(console_validation_line_is_torchtitans)
{
    struct text t = {0};
    console_validation(&t, 20, 7.93104, &typical, false);
    CHECK(!strcmp(t.data, "validate step: 20  loss:  7.9310  memory:  1.20GiB(5.00%)  tps: 7,069"));
    text_release(&t);
}

TEST(console_thousands_are_grouped_by_three)
{
    CHECK(thousands(0, "0") && thousands(999.4, "999") && thousands(999.5, "1,000"));
    CHECK(thousands(123456, "123,456") && thousands(1e9, "1,000,000,000"));
    CHECK(thousands(-1234, "-1,234") && thousands(-12, "-12"));
    CHECK(thousands(INFINITY, "inf") && thousands(NAN, "nan"));
}

TEST(console_times_of_steps_have_no_exponents)
{
    CHECK(!strcmp(console_step_time(0.02134).text, "0.0213 s"));
    CHECK(!strcmp(console_step_time(0.00121).text, "0.00121 s"));
    CHECK(!strcmp(console_step_time(4.97e-5).text, "0.0497 ms"));
    CHECK(!strcmp(console_step_time(1e-6).text, "0.001 ms"));
    CHECK(!strcmp(console_step_time(4.87e-9).text, "0.005 us"));
    CHECK(!strcmp(console_step_time(1e-12).text, "0.000 us"));
    CHECK(!strcmp(console_step_time(0).text, "0 s"));
    CHECK(!strcmp(console_step_time(999.4).text, "999 s"));
    CHECK(!strcmp(console_step_time(999.6).text, "16m40s"));
    CHECK(!strcmp(console_step_time(7210).text, "2h00m"));
}

TEST(console_durations_use_two_units)
{
    CHECK(lasts(0, "0m00s") && lasts(59.4, "0m59s") && lasts(59.6, "1m00s"));
    CHECK(lasts(3599, "59m59s") && lasts(3600, "1h00m") && lasts(86399, "23h59m"));
    CHECK(lasts(86400, "1d00h") && lasts(100 * 86400 + 7200, "100d02h"));
    CHECK(lasts(-1, "?") && lasts(NAN, "?") && lasts(1e300, "?"));
}
