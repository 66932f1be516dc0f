/* top_frame.h -- what `llamero top` shows of a run, composed for a screen of any size. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runs/run_folder.h"
#include "runs/screen.h"

#include <stdbool.h>

struct top_view {
    const struct run_folder *run; /* read in full, not as a summary */
    double now_s;                 /* since the Unix epoch */
    int curve;                    /* the series that the chart shows: see top_frame_curve */
    bool ascii;                   /* draw without Unicode */
    bool has_keys;                /* the last row names the keys */
};

/* Fills the screen: title, progress, curves, figures, and the end of the log.  A function of the
 * view and the screen's size alone.  Small screens show less. */
void top_frame(const struct top_view *v, struct screen *s);

/* Series that can be shown: loss (with the validation loss), then others, each with a finite value.
 * The key of one, or NULL beyond the last. */
const char *top_frame_curve(const struct run_folder *r, int i);
int top_frame_num_curves(const struct run_folder *r);
