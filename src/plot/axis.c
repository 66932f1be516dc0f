// SPDX-License-Identifier: Apache-2.0
#include "plot/axis.h"

#include <math.h>
#include <stdio.h>

/* Smallest of 1, 2 or 5 times a power of ten that is not below `raw`. */
static double round_up_125(double raw)
{
    double power = pow(10, floor(log10(raw))), lead = raw / power;
    return power * (lead <= 1.000001 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static void pad_range(struct axis *a, double pad)
{
    double size = fmax(fabs(a->low), fabs(a->high)), more = size > 0 ? 0.05 * size : 1;
    if (a->high - a->low <= 1e-9 * size || size == 0) a->low -= more, a->high += more;
    more = pad * (a->high - a->low);
    a->low -= more, a->high += more;
}

static void pad_log_range(struct axis *a, double pad)
{
    double decades = log10(a->high) - log10(a->low);
    double more = pow(10, decades < 0.05 ? 0.05 : pad * decades);
    a->low = fmax(a->low / more, 1e-300), a->high = fmin(a->high * more, 1e300);
}

/* Places up to `max_ticks` ticks, but at least two. */
static void place_ticks(struct axis *a, int max_ticks)
{
    for (; a->num_ticks < 2 && max_ticks < AXIS_TICKS / 2 + 2; max_ticks++) {
        a->tick_step = round_up_125((a->high - a->low) / max_ticks);
        double from = a->low / a->tick_step, to = a->high / a->tick_step, slack = 1e-6;
        a->num_ticks = 0;
        for (double i = ceil(from - slack); i <= to + slack && a->num_ticks < AXIS_TICKS; i++)
            a->ticks[a->num_ticks++] = i * a->tick_step;
    }
}

static void place_log_ticks(struct axis *a, int max_ticks)
{
    static const double leads[] = {1, 2, 5};
    double decades = log10(a->high) - log10(a->low), every = fmax(1, ceil(decades / max_ticks));
    int num_leads = decades * 3 <= max_ticks + 2 ? 3 : 1;
    for (double k = floor(log10(a->low)); k <= ceil(log10(a->high)); k += every)
        for (int i = 0; i < num_leads && a->num_ticks < AXIS_TICKS; i++) {
            double tick = leads[i] * pow(10, k);
            if (tick >= a->low * 0.999999 && tick <= a->high * 1.000001)
                a->ticks[a->num_ticks++] = tick;
        }
}

void axis_fit(struct axis *a, double low, double high, struct axis_style style)
{
    bool log = style.log;
    *a = (struct axis){.log = log};
    /* Clamp, so that the arithmetic does not overflow. */
    a->low = fmin(fmax(low, log ? 1e-290 : -1e290), 1e290);
    a->high = fmax(fmin(high, 1e290), a->low);
    if (log)
        pad_log_range(a, style.padding);
    else
        pad_range(a, style.padding);
    /* Within one decade, evenly spaced ticks are denser than 1, 2, 5. */
    if (log && a->high >= 10 * a->low)
        place_log_ticks(a, style.num_ticks);
    else
        place_ticks(a, style.num_ticks);
}

double axis_position(const struct axis *a, double value)
{
    double fraction = a->log
                          ? (log(fmax(value, 1e-300)) - log(a->low)) / (log(a->high) - log(a->low))
                          : (value - a->low) / (a->high - a->low);
    return fmin(fmax(fraction, 0), 1);
}

void axis_label(const struct axis *a, double value, char label[AXIS_LABEL])
{
    static const struct {
        double from, unit;
        const char *suffix;
    } units[] = {{1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}, {1e-2, 1, ""}};
    enum { NUM_UNITS = sizeof units / sizeof *units };
    double size = a->tick_step == 0 ? fabs(value) : fmax(fabs(a->low), fabs(a->high)), unit = 0;
    const char *suffix = "";
    char power[16];
    for (int i = 0; i < NUM_UNITS && unit == 0 && size < 1e13; i++)
        if (size >= units[i].from) unit = units[i].unit, suffix = units[i].suffix;
    if (unit == 0) {
        int exponent = (int)floor(log10(size > 0 ? size : 1) + 1e-9);
        snprintf(power, sizeof power, "e%d", exponent);
        unit = pow(10, exponent), suffix = power;
    }
    if (value == 0)
        snprintf(label, AXIS_LABEL, "0");
    else if (a->tick_step == 0)
        snprintf(label, AXIS_LABEL, "%.3g%s", value / unit, suffix);
    else
        snprintf(label, AXIS_LABEL, "%.*f%s",
                 (int)fmin(fmax(0, ceil(-log10(a->tick_step / unit) - 1e-9)), 12), value / unit,
                 suffix);
}
