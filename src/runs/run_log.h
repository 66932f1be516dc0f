/* run_log.h -- the last lines of a run's log.txt, how they end, and how the run was started.
 *
 * Memory   RUN_LOG_LINES lines of up to RUN_LOG_COLUMNS bytes, and RUN_LOG_STARTS starts. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "runs/file_tail.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RUN_LOG_LINES = 256, RUN_LOG_COLUMNS = 1000, RUN_LOG_STARTS = 32, RUN_LOG_START_LINES = 5 };

/* What the run says of itself when it starts (train/run_report.h): version and model, ranks and
 * device, steps. */
struct run_start {
    char *lines[RUN_LOG_START_LINES]; /* printable, with date and time */
    size_t num_lines;
};

enum run_log_end {
    LOG_ENDS_open,    /* with neither of these */
    LOG_ENDS_error,   /* the run failed */
    LOG_ENDS_stopped, /* a signal or the end of its job stopped it */
};

/* Initialize with { 0 }. */
struct run_log {
    char *ring[RUN_LOG_LINES]; /* printable (printable.h); read it with run_log_line */
    uint64_t num_lines;        /* since `tail` began to read */
    struct run_start starts[RUN_LOG_STARTS]; /* the last ones */
    size_t num_starts;
    bool is_starting; /* the next line may belong to the last start */
    struct file_tail tail;
};

/* Reads what log.txt, `path`, got since the last call; of one that is longer than `most` bytes at
 * first only its end.  MISSING, IO, DATA. */
enum status run_log_update(struct run_log *l, const char *path, uint64_t most);
void run_log_release(struct run_log *l);

size_t run_log_count(const struct run_log *l); /* of the lines that are kept */
/* The i-th of them; 0 is the oldest. */
const char *run_log_line(const struct run_log *l, size_t i);
/* How many lines of the file are before the last `shown` ones; -1: unknown, the file is too
 * long. */
int64_t run_log_num_dropped(const struct run_log *l, size_t shown);
/* The line without the date and time that log.txt puts before it, or without the date only. */
const char *run_log_undated(const char *line, bool keeps_time);
/* How the last attempt ended, so far as the log says.  *message is the error, if there is one; it
 * points into the log. */
enum run_log_end run_log_find_end(const struct run_log *l, const char **message);
