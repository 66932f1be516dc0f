/* report.h -- one HTML page about some runs: summary, curves, settings, checkpoints, samples,
 * starts and log.
 *
 * The page needs no other file and no network: style and script are report.html, the data is JSON
 * in it.  A curve of more than REPORT_POINTS points is thinned: of each group of neighbors the page
 * has the minimum and the maximum. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "runs/run_folder.h"

#include <stddef.h>

enum { REPORT_POINTS = 4000 };

/* Text that a run's model generated. */
struct report_sample {
    const char *prompt, *text; /* borrowed */
};

struct report_run {
    const struct run_folder *folder; /* borrowed; opened without is_summary */
    const struct report_sample *samples;
    size_t num_samples;
};

/* Appends the page.  `now_s`: seconds since the Unix epoch. */
void report_page(const struct report_run *runs, size_t count, double now_s, struct text *out);

/* Keeps at most `most` (even, at least 4) of the points: the first and the last, and of each group
 * of neighbors the minimum and the maximum in their order.  NaN counts as the maximum.  Returns how
 * many are kept. */
size_t report_thin(double *x, double *y, size_t count, size_t most);
