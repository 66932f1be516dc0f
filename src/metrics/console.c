// SPDX-License-Identifier: Apache-2.0
#include "metrics/console.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum console_color { PLAIN, RED, GREEN, YELLOW, TURQUOISE, BLUE, CYAN, MAGENTA };
static const char *const escapes[] = {
    [PLAIN] = "\033[0m",      [RED] = "\033[31m",  [GREEN] = "\033[32m", [YELLOW] = "\033[33m",
    [TURQUOISE] = "\033[96m", [BLUE] = "\033[34m", [CYAN] = "\033[36m",  [MAGENTA] = "\033[35m"};

static void append_color(struct text *t, bool color, enum console_color p)
{
    if (color) text_adds(t, escapes[p]);
}

/* Appends a formatted number with a comma between thousands of its integer part. */
static void append_grouped(struct text *t, const char *number)
{
    size_t sign = number[0] == '-', num_digits = strspn(number + sign, "0123456789");
    text_add(t, number, sign);
    for (size_t i = 0; i < num_digits; i++) {
        if (i && (num_digits - i) % 3 == 0) text_adds(t, ",");
        text_add(t, number + sign + i, 1);
    }
    text_adds(t, number + sign + num_digits);
}

static void append_number(struct text *t, double value, int decimals)
{
    char number[400]; /* the largest double has 309 digits */
    snprintf(number, sizeof number, "%.*f", decimals, value);
    append_grouped(t, number);
}

void console_thousands(struct text *t, double value) { append_number(t, value, 0); }

void console_duration(struct text *t, double seconds)
{
    if (!(seconds >= 0 && seconds < 1e11)) {
        text_adds(t, "?");
        return;
    }
    long long s = llround(seconds), minutes = s / 60, hours = s / 3600;
    if (hours >= 24)
        text_addf(t, "%lldd%02lldh", hours / 24, hours % 24);
    else if (hours)
        text_addf(t, "%lldh%02lldm", hours, minutes % 60);
    else
        text_addf(t, "%lldm%02llds", minutes, s % 60);
}

struct console_time console_step_time(double seconds)
{
    struct console_time time;
    struct text t = {0};
    if (seconds > 0 && seconds < 0.0009995e-3)
        text_addf(&t, "%.3f us", 1e6 * seconds);
    else if (seconds > 0 && seconds < 0.0009995)
        text_addf(&t, "%.3g ms", 1e3 * seconds);
    else if (seconds < 999.5)
        text_addf(&t, "%.3g s", seconds);
    else
        console_duration(&t, seconds);
    snprintf(time.text, sizeof time.text, "%s", t.data);
    text_release(&t);
    return time;
}

/* Appends " (14:40)", with the weekday or date if that is more than a day away. */
static void append_clock(struct text *t, double left_s, double wall_s)
{
    char when[64];
    struct tm local;
    if (!(left_s >= 0 && left_s < 1e11)) return;
    time_t then = (time_t)llround(wall_s + left_s);
    if (!localtime_r(&then, &local)) return;
    const char *format = left_s < 86400 ? "%H:%M" : left_s < 6 * 86400 ? "%a %H:%M" : "%Y-%m-%d";
    if (strftime(when, sizeof when, format, &local)) text_addf(t, " (%s)", when);
}

static void append_memory(struct text *t, const struct derived_metrics *d, bool color)
{
    append_color(t, color, TURQUOISE);
    text_addf(t, "  memory: %5.2fGiB(%.2f%%)", d->memory_gib, 100 * d->memory_share);
    append_color(t, color, BLUE);
    text_adds(t, "  tps: ");
    console_thousands(t, d->tokens_per_second_per_rank);
}

void console_step(struct text *t, const struct step_metrics *s, const struct derived_metrics *d,
                  const struct run_progress *p, bool color)
{
    append_color(t, color, RED);
    text_addf(t, "step: %2lld", (long long)s->step);
    append_color(t, color, GREEN);
    text_addf(t, "  loss: %8.5f", s->loss);
    append_color(t, color, YELLOW);
    text_addf(t, "  grad_norm: %7.4f", s->grad_norm);
    append_memory(t, d, color);
    append_color(t, color, CYAN);
    text_adds(t, "  tflops: ");
    append_number(t, d->tflops_per_rank, 2);
    append_color(t, color, MAGENTA);
    if (isfinite(d->mfu))
        text_addf(t, "  mfu: %.2f%%", 100 * d->mfu);
    else
        text_adds(t, "  mfu: N/A");
    append_color(t, color, PLAIN);
    text_adds(t, "  eta: ");
    console_duration(t, p->remaining_s);
    append_clock(t, p->remaining_s, p->wall_s);
}

void console_step_brief(struct text *t, const struct step_metrics *s,
                        const struct derived_metrics *d, const struct run_progress *p, bool color)
{
    append_color(t, color, RED);
    text_addf(t, "step %lld", (long long)s->step);
    append_color(t, color, GREEN);
    text_addf(t, "  loss %.5f", s->loss);
    append_color(t, color, YELLOW);
    text_addf(t, "  grad %.3g", s->grad_norm);
    append_color(t, color, BLUE);
    text_adds(t, "  tps ");
    console_thousands(t, d->tokens_per_second_per_rank);
    append_color(t, color, MAGENTA);
    if (isfinite(d->mfu)) text_addf(t, "  mfu %.1f%%", 100 * d->mfu);
    append_color(t, color, PLAIN);
    text_adds(t, "  eta ");
    console_duration(t, p->remaining_s);
}

void console_validation(struct text *t, int64_t step, double loss, const struct derived_metrics *d,
                        bool color)
{
    append_color(t, color, GREEN);
    text_addf(t, "validate step: %2lld", (long long)step);
    text_addf(t, "  loss: %7.4f", loss);
    append_memory(t, d, color);
    append_color(t, color, PLAIN);
}
