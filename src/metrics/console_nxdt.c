// SPDX-License-Identifier: Apache-2.0
#include "metrics/console_nxdt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest decimal that round-trips, as Python's repr of a float. */
static void format_shortest(double value, char *to, size_t size)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(to, size, "%.*g", digits, value);
        if (strtod(to, NULL) == value) break;
    }
    double magnitude = fabs(value);
    if (magnitude >= 1e15 || (magnitude > 0 && magnitude < 1e-4)) return;
    int decimals = 0;
    do snprintf(to, size, "%.*f", ++decimals, value);
    while (decimals < 20 && strtod(to, NULL) != value);
}

/* Turns e-09 into e-9. */
static void strip_exponent(char *number)
{
    char *e = strchr(number, 'e');
    if (e && e[2] == '0') memmove(e + 2, e + 3, strlen(e + 3) + 1);
}

void console_nxdt_number(struct text *t, double value)
{
    char rounded[64], exact[64];
    if (!isfinite(value)) {
        text_addf(t, "%s", isnan(value) ? "nan.0" : value < 0 ? "-inf." : "inf.0");
        return;
    }
    snprintf(rounded, sizeof rounded, "%.3g", value);
    strip_exponent(rounded);
    format_shortest(value, exact, sizeof exact);
    const char *shorter = strlen(rounded) < strlen(exact) ? rounded : exact;
    size_t len = strlen(shorter);
    text_adds(t, shorter);
    if (strchr(shorter, 'e')) return;
    if (!strchr(shorter, '.') && len < 5) text_adds(t, "."), len++;
    for (; len < 5; len++) text_adds(t, "0");
}

static void append_metric(struct text *t, const char *name, double value)
{
    text_addf(t, ", %s=", name);
    console_nxdt_number(t, value);
}

/* Appends 16:05 or 7:52:06. */
static void append_time(struct text *t, double seconds)
{
    if (!(seconds >= 0 && seconds < 1e11)) {
        text_adds(t, "?");
        return;
    }
    long long s = (long long)seconds, hours = s / 3600;
    if (hours) text_addf(t, "%lld:", hours);
    text_addf(t, "%02lld:%02lld", s / 60 % 60, s % 60);
}

static void append_bar(struct text *t, double share)
{
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    enum { CELLS = 10, PARTS = 8 };
    int parts = (int)(fmin(fmax(share, 0), 1) * CELLS * PARTS);
    for (int i = 0; i < CELLS; i++, parts -= PARTS)
        text_adds(t, parts >= PARTS ? "█" : parts > 0 ? eighths[parts] : " ");
}

double console_nxdt_throughput(const struct derived_metrics *d)
{
    return d->step_seconds > 0 ? d->step_rows / d->step_seconds : 0;
}

void console_nxdt_step(struct text *t, const struct metrics_options *o,
                       const struct step_metrics *s, const struct derived_metrics *d,
                       const struct run_progress *p)
{
    double share = o->last_step > 0 ? (double)s->step / (double)o->last_step : 1;
    double rate = console_nxdt_throughput(d);
    text_addf(t, "Epoch 0: %3.0f%%|", 100 * share);
    append_bar(t, share);
    text_addf(t, "| %lld/%lld [", (long long)s->step, (long long)o->last_step);
    append_time(t, p->elapsed_s);
    text_adds(t, "<");
    append_time(t, p->remaining_s);
    if (d->step_seconds < 1 && d->step_seconds > 0)
        text_addf(t, ", %5.2fit/s", 1 / d->step_seconds);
    else
        text_addf(t, ", %5.2fs/it", d->step_seconds);
    text_adds(t, ", loss=");
    text_addf(t, "%.3g, v_num=0", isnan(s->loss) ? fabs(s->loss) : s->loss); /* not -nan */
    append_metric(t, "reduced_train_loss", s->loss);
    append_metric(t, "lr", s->lr);
    append_metric(t, "parameter_norm", s->parameter_norm);
    append_metric(t, "gradient_norm", s->grad_norm);
    append_metric(t, "global_step", (double)(s->step - 1));
    append_metric(t, "consumed_samples", (double)s->rows_done);
    append_metric(t, "throughput", rate);
    append_metric(t, "throughput_peak", fmax(p->best_throughput, rate));
    text_adds(t, "]");
}
