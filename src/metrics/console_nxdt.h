/* console_nxdt.h -- the line of NxD Training: Lightning's progress bar with its metrics.
 *
 * loss= is the loss of that step, as reduced_train_loss: theirs is a running mean of values that
 * are only renewed when they are logged.  throughput counts rows a second. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "metrics/figures.h"

/* A number as the bar shows it: the shorter of three digits and of all of them, five characters at
 * least. */
void nxdt_number(struct text *t, double value);

/* elapsed_s: since this start; best: the most rows a second of any line before. */
void nxdt_step(struct text *t, const struct metrics_options *o, const struct step_metrics *s,
               const struct figures *f, double elapsed_s, double left_s, double best);
double nxdt_throughput(const struct metrics_options *o, const struct figures *f);
