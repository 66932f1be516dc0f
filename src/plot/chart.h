/* chart.h -- line charts for the terminal and as SVG. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "plot/axis.h"

#include <stdbool.h>
#include <stddef.h>

/* A series of points, joined in order; all values are finite.  All pointers are borrowed. */
struct chart_line {
    const char *name; /* in the legend */
    const double *x, *y;
    size_t count;
    const double *raw; /* the unsmoothed y, drawn faintly behind the line, or NULL */
    bool marks;        /* draw a marker at each point: for a few points */
    int color;         /* index into the palette, modulo its size */
};

struct chart {
    const char *title; /* or NULL */
    const char *x_label, *y_label;
    const struct chart_line *lines;
    int num_lines;
    bool log_y;        /* requires all y > 0 */
    bool ascii;        /* on a terminal that shows no other characters */
    int width, height; /* characters, or pixels */
};

/* Fits both axes to all lines, their `raw` values included.  Requires at least one point. */
void chart_axes(const struct chart *c, int x_ticks, int y_ticks, struct axis *x, struct axis *y);

/* Draws with Braille characters, two by four dots each; with `ascii`, with . ' : instead.  The size
 * must be at least 30 by 8. */
void chart_terminal(const struct chart *c, bool color, struct text *out);
/* Writes one self-contained SVG document with a transparent background, readable on light and dark
 * pages. */
void chart_svg(const struct chart *c, struct text *out);

/* Centered moving average over up to `window` values: smoothed[i] for values[0..count). */
void chart_smooth(const double *values, size_t count, size_t window, double *smoothed);
