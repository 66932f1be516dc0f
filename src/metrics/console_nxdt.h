/* console_nxdt.h -- NxD Training's console line: Lightning's progress bar with its metrics.
 *
 * loss= is the loss of the step, equal to reduced_train_loss; NxD Training prints a running mean
 * that is only updated when the loss is logged.  throughput is in rows per second. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "metrics/derived_metrics.h"

/* Formats a number as the progress bar does: the shorter of three significant digits and all
 * digits, padded to five characters. */
void console_nxdt_number(struct text *t, double value);

void console_nxdt_step(struct text *t, const struct metrics_options *o,
                       const struct step_metrics *s, const struct derived_metrics *d,
                       const struct run_progress *p);
/* Rows per second. */
double console_nxdt_throughput(const struct derived_metrics *d);
