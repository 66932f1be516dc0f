/* run_cell.h -- one value of a run by the name of its column: what it is, a setting, or a metric.
 *
 * Units    age: seconds since the run last wrote; eta: seconds to its last step. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "runs/run_list.h"

#include <stdbool.h>

/* name, what it is */
#define RUN_COLUMNS(X)                                                                             \
    X(run, "the run's folder")                                                                     \
    X(state, "running, stalled, finished, stopped, failed or killed")                              \
    X(step, "steps made")                                                                          \
    X(steps, "steps to make")                                                                      \
    X(loss, "the last loss (nats/token)")                                                          \
    X(best_validation, "the smallest validation loss")                                             \
    X(tokens, "tokens trained on")                                                                 \
    X(age, "time since the run last wrote")                                                        \
    X(eta, "time to the last step, while it runs")                                                 \
    X(checkpoint, "step of the newest checkpoint")                                                 \
    X(ranks, "number of ranks")                                                                    \
    X(error, "why it failed")

enum run_cell_kind { RUN_CELL_none, RUN_CELL_number, RUN_CELL_text };

struct run_cell {
    enum run_cell_kind kind;
    double number;    /* may be NaN: a loss that was not finite */
    const char *text; /* printable; borrowed from the run */
};

/* The value of a column of RUN_COLUMNS, of a setting "section.key", or the last one of a metric. */
struct run_cell run_cell_of(const struct run_folder *r, const char *column, double now_s);

/* Whether the whole text is one finite number. */
bool run_cell_parse_number(const char *text, double *number);

/* USAGE: none of the runs has such a column; the message suggests the closest. */
enum status run_cell_check_column(const struct run_list *l, const char *column);
