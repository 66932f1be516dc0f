/* run_metrics.h -- what a run logged, by key: metrics.jsonl as series of values by step.
 *
 * A run that went back to an earlier step, by a rollback or a restart, repeats steps: the last
 * value of each step counts, and values of the steps it went back over are forgotten.  Lines that
 * are not a JSON object with a "step" are counted and skipped, among them an incomplete last one.
 * Scores of evaluation tasks have the keys "TASK/SCORE", such as "piqa/acc".
 * Memory   At most RUN_METRICS_KEYS series; of a file longer than RUN_METRICS_BYTES only its end is
 *          read. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "runs/file_tail.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RUN_METRICS_KEYS = 4096, RUN_METRICS_BYTES = 1 << 28 };

struct run_series {
    char *key;
    double *steps, *values; /* by ascending step; a value logged as null is NaN, and none is else */
    size_t count, capacity;
};

struct run_rollback {
    int64_t from, to; /* the run went on after step `to` */
};

/* Initialize with { 0 }. */
struct run_metrics {
    struct run_series *series; /* in the order in which their keys first appear */
    size_t num_series;
    struct run_rollback *rollbacks;
    size_t num_rollbacks;
    int64_t last_step;     /* of the last line with a loss, or of any without one; -1: none */
    size_t num_bad_lines;  /* not a JSON object with a step */
    int64_t num_gap_lines; /* lost while the run could not write them */
    bool is_partial;       /* the file is longer than RUN_METRICS_BYTES: early steps are missing */
    bool is_summary;       /* set before the first read: see below */
    struct file_tail tail;
    struct text pending; /* summary: the last line with a loss, unless it is read already */
};

/* Reads what metrics.jsonl, `path`, got since the last call.  With is_summary, of the steps' own
 * lines only some are parsed, the last among them: enough for the last values of all keys, and
 * all validation losses, task scores and rollbacks, in a tenth of the time.  MISSING, IO, DATA. */
enum status run_metrics_update(struct run_metrics *m, const char *path);
void run_metrics_release(struct run_metrics *m);

const struct run_series *run_metrics_find(const struct run_metrics *m,
                                          const char *key); /* or NULL */
/* The last value of a key; NaN: none, or logged as null. */
double run_metrics_last(const struct run_metrics *m, const char *key);
/* The smallest finite value of a key and its step; false: it has none. */
bool run_metrics_least(const struct run_metrics *m, const char *key, double *value, int64_t *step);
