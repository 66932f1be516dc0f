/* history.h -- removes from a run's metrics.jsonl what a resumed run writes again.
 *
 * A file may end in an incomplete line, after a crash. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a resumed run appends. */
struct history_end {
    int64_t last_step; /* keep lines up to this step; 0: keep none */
    bool validates;    /* the run validates that step again: remove its validation and tasks */
};
/* Removes the lines that a run resumed from there writes again, and those that are not a JSON
 * object with a "step".  Replaces the file atomically; *num_removed is the number of lines removed.
 * A missing file is fine.  IO. */
enum status history_truncate(const char *path, const struct history_end *end, size_t *num_removed);
