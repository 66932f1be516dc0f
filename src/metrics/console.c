// SPDX-License-Identifier: Apache-2.0
#include "metrics/console.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum paint { PLAIN, RED, GREEN, YELLOW, TURQUOISE, BLUE, CYAN, MAGENTA };
static const char *const escapes[] = {
    [PLAIN] = "\033[0m",      [RED] = "\033[31m",  [GREEN] = "\033[32m", [YELLOW] = "\033[33m",
    [TURQUOISE] = "\033[96m", [BLUE] = "\033[34m", [CYAN] = "\033[36m",  [MAGENTA] = "\033[35m"};

static void dip(struct text *t, bool colour, enum paint p)
{
    if (colour) text_adds(t, escapes[p]);
}

/* Digits of a number as printed, with commas: only before a point, only digits. */
static void add_grouped(struct text *t, const char *number)
{
    size_t sign = number[0] == '-', whole = strspn(number + sign, "0123456789");
    text_add(t, number, sign);
    for (size_t i = 0; i < whole; i++) {
        if (i && (whole - i) % 3 == 0) text_adds(t, ",");
        text_add(t, number + sign + i, 1);
    }
    text_adds(t, number + sign + whole);
}

static void grouped(struct text *t, double value, int decimals)
{
    char number[400]; /* the largest double has 309 digits */
    snprintf(number, sizeof number, "%.*f", decimals, value);
    add_grouped(t, number);
}

void console_thousands(struct text *t, double value) { grouped(t, value, 0); }

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

/* " (14:40)"; with the day where that is not within a day. */
static void add_clock(struct text *t, double left_s, double wall_s)
{
    char when[64];
    struct tm local;
    if (!(left_s >= 0 && left_s < 1e11)) return;
    time_t then = (time_t)llround(wall_s + left_s);
    if (!localtime_r(&then, &local)) return;
    const char *format = left_s < 86400 ? "%H:%M" : left_s < 6 * 86400 ? "%a %H:%M" : "%Y-%m-%d";
    if (strftime(when, sizeof when, format, &local)) text_addf(t, " (%s)", when);
}

static void add_memory(struct text *t, const struct figures *f, bool colour)
{
    dip(t, colour, TURQUOISE);
    text_addf(t, "  memory: %5.2fGiB(%.2f%%)", f->memory_gib, 100 * f->memory_share);
    dip(t, colour, BLUE);
    text_adds(t, "  tps: ");
    console_thousands(t, f->tokens_per_second_per_rank);
}

void console_step(struct text *t, const struct step_metrics *s, const struct figures *f,
                  double left_s, double wall_s, bool colour)
{
    dip(t, colour, RED);
    text_addf(t, "step: %2lld", (long long)s->step);
    dip(t, colour, GREEN);
    text_addf(t, "  loss: %8.5f", s->loss);
    dip(t, colour, YELLOW);
    text_addf(t, "  grad_norm: %7.4f", s->grad_norm);
    add_memory(t, f, colour);
    dip(t, colour, CYAN);
    text_adds(t, "  tflops: ");
    grouped(t, f->tflops_per_rank, 2);
    dip(t, colour, MAGENTA);
    if (isfinite(f->mfu))
        text_addf(t, "  mfu: %.2f%%", 100 * f->mfu);
    else
        text_adds(t, "  mfu: N/A");
    dip(t, colour, PLAIN);
    text_adds(t, "  eta: ");
    console_duration(t, left_s);
    add_clock(t, left_s, wall_s);
}

void console_validation(struct text *t, int64_t step, double loss, const struct figures *f,
                        bool colour)
{
    dip(t, colour, GREEN);
    text_addf(t, "validate step: %2lld", (long long)step);
    text_addf(t, "  loss: %7.4f", loss);
    add_memory(t, f, colour);
    dip(t, colour, PLAIN);
}
