/* axis.h -- the range of an axis, where its ticks are, and what they are called. */
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
    double tick_step; /* between ticks; 0: each is a multiple of the one before */
};

/* Up to about `want` (2..12) ticks at 1, 2 or 5 times a power of ten.  The range is widened by the
 * share `pad` at both ends, and a range of nothing until it is seen.  A logarithmic axis needs
 * low > 0. */
void axis_fit(struct axis *a, double low, double high, int want, double pad, bool log);
/* 0 at the low end, 1 at the high one; values outside are taken to the nearer end. */
double axis_place(const struct axis *a, double value);
/* "0.25", "1.5k", "3.0e-4": with the digits that tell the ticks apart. */
void axis_label(const struct axis *a, double value, char label[AXIS_LABEL]);
