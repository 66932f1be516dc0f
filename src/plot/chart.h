/* chart.h -- curves over steps, for a terminal and as an SVG picture. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "plot/axis.h"

#include <stdbool.h>
#include <stddef.h>

/* Points in the order in which they are joined; values are finite.  All borrowed. */
struct chart_line {
    const char *name; /* in the legend */
    const double *x, *y;
    size_t count;
    const double *raw; /* what was smoothed into y, drawn faintly behind it, or NULL */
    bool marks;        /* a mark at each point: for few of them */
    int colour;        /* of the palette, in turn: 0, 1, ... */
};

struct chart {
    const char *title; /* or NULL */
    const char *x_label, *y_label;
    const struct chart_line *lines;
    int num_lines;
    bool log_y;        /* then all values are > 0 */
    int width, height; /* characters, or pixels */
};

/* Ranges of both axes over all lines, faint ones included; there is at least one point. */
void chart_axes(const struct chart *c, int x_ticks, int y_ticks, struct axis *x, struct axis *y);

/* At least 30 by 8 characters; curves of two by four Braille dots a character. */
void chart_terminal(const struct chart *c, bool colour, struct text *out);
/* One self-contained SVG document; transparent, in colours for light and dark pages. */
void chart_svg(const struct chart *c, struct text *out);

/* The mean of up to `window` values around each one: smoothed[i] of values[0..count). */
void chart_smooth(const double *values, size_t count, size_t window, double *smoothed);
