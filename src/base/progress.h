/* progress.h -- how far a long command is: on a terminal a line that is redrawn, otherwise a log
 * line every ten seconds; both with rate and time left.
 *
 * A thread has at most one progress, which a command begins and ends; functions below it add to it,
 * and are no-ops without one.
 * Threads  What other threads add, such as one that saves a checkpoint, does not count. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>

enum progress_unit { PROGRESS_BYTES, PROGRESS_TOKENS, PROGRESS_ROWS, PROGRESS_ITEMS };

/* `what` is borrowed.  `total` 0: unknown.  Silent on ranks other than 0, and with --quiet. */
void progress_begin(const char *what, enum progress_unit unit, double total);
void progress_add(double amount);
/* Sets the amount and the total, where the caller counts. */
void progress_set(double done, double total);
/* Clears the line on the terminal. */
void progress_end(void);

struct progress_amount {
    enum progress_unit unit;
    double done, total, seconds;
};
/* "verify: 45 %, 1.2 of 2.7 GB, 310 MB/s, 4 s left" */
void progress_describe(struct text *t, const char *what, const struct progress_amount *a);
