/* axis.h -- an axis of a chart: its range, tick positions and tick labels. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { AXIS_TICKS = 24, AXIS_LABEL = 32 };

struct axis {
    double low, high;
    bool log;
    double ticks[AXIS_TICKS];
    int num_ticks;
    double tick_step; /* distance between ticks; 0: logarithmic, ticks grow by factors */
};

/* Fits an axis with about `want` (2 to 12) ticks at 1, 2 or 5 times a power of ten.  Pads the range
 * by the fraction `pad` at both ends, and widens a range of zero width.  A logarithmic axis
 * requires low > 0. */
void axis_fit(struct axis *a, double low, double high, int want, double pad, bool log);
/* Position of a value from 0 (low end) to 1 (high end); values outside the range are clamped. */
double axis_position(const struct axis *a, double value);
/* Formats "0.25", "1.5k" or "3.0e-4", with enough digits to distinguish the ticks. */
void axis_label(const struct axis *a, double value, char label[AXIS_LABEL]);
