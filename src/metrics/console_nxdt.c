// SPDX-License-Identifier: Apache-2.0
#include "metrics/console_nxdt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fewest digits that give the number back, as Python writes a float. */
static void shortest(double value, char *to, size_t size)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(to, size, "%.*g", digits, value);
        if (strtod(to, NULL) == value) break;
    }
    double size_of = fabs(value);
    if (size_of >= 1e15 || (size_of > 0 && size_of < 1e-4)) return;
    int decimals = 0;
    do snprintf(to, size, "%.*f", ++decimals, value);
    while (decimals < 20 && strtod(to, NULL) != value);
}

/* e-09 becomes e-9. */
static void strip_exponent(char *number)
{
    char *e = strchr(number, 'e');
    if (e && e[2] == '0') memmove(e + 2, e + 3, strlen(e + 3) + 1);
}

void nxdt_number(struct text *t, double value)
{
    char brief[64], whole[64];
    if (!isfinite(value)) {
        text_addf(t, "%s", isnan(value) ? "nan.0" : value < 0 ? "-inf.0" : "inf.0");
        return;
    }
    snprintf(brief, sizeof brief, "%.3g", value);
    strip_exponent(brief);
    shortest(value, whole, sizeof whole);
    const char *chosen = strlen(brief) < strlen(whole) ? brief : whole;
    size_t len = strlen(chosen);
    text_adds(t, chosen);
    if (strchr(chosen, 'e')) return;
    if (!strchr(chosen, '.') && len < 5) text_adds(t, "."), len++;
    for (; len < 5; len++) text_adds(t, "0");
}

static void add(struct text *t, const char *name, double value)
{
    text_addf(t, ", %s=", name);
    nxdt_number(t, value);
}

/* 16:05, 7:52:06 */
static void add_time(struct text *t, double seconds)
{
    if (!(seconds >= 0 && seconds < 1e11)) {
        text_adds(t, "?");
        return;
    }
    long long s = (long long)seconds, hours = s / 3600;
    if (hours) text_addf(t, "%lld:", hours);
    text_addf(t, "%02lld:%02lld", s / 60 % 60, s % 60);
}

static void add_bar(struct text *t, double share)
{
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    enum { CELLS = 10, PARTS = 8 };
    int parts = (int)(fmin(fmax(share, 0), 1) * CELLS * PARTS);
    for (int i = 0; i < CELLS; i++, parts -= PARTS)
        text_adds(t, parts >= PARTS ? "█" : parts > 0 ? eighths[parts] : " ");
}

double nxdt_throughput(const struct metrics_options *o, const struct figures *f)
{
    return f->step_seconds > 0 ? (double)o->rows_per_step / f->step_seconds : 0;
}

void nxdt_step(struct text *t, const struct metrics_options *o, const struct step_metrics *s,
               const struct figures *f, double elapsed_s, double left_s, double best)
{
    double share = o->last_step > 0 ? (double)s->step / (double)o->last_step : 1;
    double rate = nxdt_throughput(o, f);
    text_addf(t, "Epoch 0: %3.0f%%|", 100 * share);
    add_bar(t, share);
    text_addf(t, "| %lld/%lld [", (long long)s->step, (long long)o->last_step);
    add_time(t, elapsed_s);
    text_adds(t, "<");
    add_time(t, left_s);
    if (f->step_seconds < 1 && f->step_seconds > 0)
        text_addf(t, ", %5.2fit/s", 1 / f->step_seconds);
    else
        text_addf(t, ", %5.2fs/it", f->step_seconds);
    text_adds(t, ", loss=");
    text_addf(t, "%.3g, v_num=0", s->loss);
    add(t, "reduced_train_loss", s->loss);
    add(t, "lr", s->lr);
    add(t, "parameter_norm", s->parameter_norm);
    add(t, "gradient_norm", s->grad_norm);
    add(t, "global_step", (double)(s->step - 1));
    add(t, "consumed_samples", (double)(s->step * o->rows_per_step));
    add(t, "throughput", rate);
    add(t, "throughput_peak", fmax(best, rate));
    text_adds(t, "]");
}
