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

struct axis_style {
    int num_ticks;  /* about this many: 2 to 12 */
    double padding; /* fraction of the range to add at both ends */
    bool log;       /* logarithmic: requires low > 0 */
};
/* Fits an axis to a range, with ticks at 1, 2 or 5 times a power of ten.  Widens a range of zero
 * width. */
void axis_fit(struct axis *a, double low, double high, struct axis_style style);
/* Position of a value from 0 (low end) to 1 (high end); values outside the range are clamped. */
double axis_position(const struct axis *a, double value);
/* Formats "0.25", "1.5k" or "3.0e-4", with enough digits to distinguish the ticks. */
void axis_label(const struct axis *a, double value, char label[AXIS_LABEL]);
