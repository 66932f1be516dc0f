/* history.h -- reads and truncates a run's metrics.jsonl.
 *
 * A file may end in an incomplete line, after a crash or while a run is writing it: all functions
 * skip lines that are not a JSON object with a "step". */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* Where a resumed run appends. */
struct history_end {
    int64_t last_step; /* keep lines up to this step; 0: keep none */
    bool validates;    /* the run validates that step again: remove its validation and tasks */
};
/* Removes what a run resumed from there writes again.  Replaces the file atomically; *num_removed
 * is the number of lines removed.  A missing file is fine.  IO. */
enum status history_truncate(const char *path, const struct history_end *end, size_t *num_removed);

/* The values of one key by step, in file order.  Lines without the key, or with null, are
 * skipped. */
struct history_series {
    double *steps, *values; /* owned */
    size_t count;
};
/* `run` is a metrics.jsonl or a folder that has one.  MISSING: no such file. */
enum status history_read(const char *run, const char *key, struct history_series *s);
void history_series_release(struct history_series *s);
/* Collects the keys that have a number in some line, separated by spaces, for messages. */
enum status history_keys(const char *run, struct text *keys);
