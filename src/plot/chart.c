// SPDX-License-Identifier: Apache-2.0
#include "plot/chart.h"

#include <math.h>

static void include_values(double *low, double *high, const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        *low = fmin(*low, values[i]);
        *high = fmax(*high, values[i]);
    }
}

void chart_axes(const struct chart *c, int x_ticks, int y_ticks, struct axis *x, struct axis *y)
{
    double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
    for (int i = 0; i < c->num_lines; i++) {
        const struct chart_line *l = &c->lines[i];
        include_values(&x_low, &x_high, l->x, l->count);
        include_values(&y_low, &y_high, l->y, l->count);
        if (l->raw) include_values(&y_low, &y_high, l->raw, l->count);
    }
    axis_fit(x, x_low, x_high, (struct axis_style){.num_ticks = x_ticks});
    axis_fit(y, y_low, y_high,
             (struct axis_style){.num_ticks = y_ticks, .padding = 0.04, .log = c->log_y});
}

void chart_smooth(const double *values, size_t count, size_t window, double *smoothed)
{
    /* Near the ends the window shrinks symmetrically, so that a straight line stays straight.  A
     * running sum would carry the rounding error of a large value along: sum each window. */
    size_t reach = window / 2;
    for (size_t i = 0; i < count; i++) {
        size_t r = i < reach ? i : reach;
        if (count - 1 - i < r) r = count - 1 - i;
        double sum = 0;
        for (size_t j = i - r; j <= i + r; j++) sum += values[j];
        smoothed[i] = sum / (double)(2 * r + 1);
    }
}
