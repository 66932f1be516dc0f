/* history.h -- a run's metrics.jsonl, read again.
 *
 * A file that a crash tore, or that is being written, ends in a piece of a line: every function
 * here leaves out lines that are no JSON object with a "step". */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdint.h>

/* Keeps the lines of steps up to last_step, so that a run that goes on from there repeats none;
 * last_step 0 keeps none.  The file is replaced at once or not at all; *num_cut lines went.  An
 * absent file is fine.  IO. */
enum status history_cut(const char *path, int64_t last_step, size_t *num_cut);

/* One key's values over the steps, in the order of the file.  Lines without it, and null, are left
 * out. */
struct series {
    double *steps, *values; /* owned */
    size_t count;
};
/* `run` is a metrics.jsonl or the folder that holds one.  MISSING: no such file. */
enum status history_read(const char *run, const char *key, struct series *s);
void series_release(struct series *s);
/* The keys that hold numbers in some line, separated by blanks, for messages. */
enum status history_keys(const char *run, struct text *keys);
