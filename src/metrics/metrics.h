/* metrics.h -- what a run reports: console line, metrics.jsonl, TensorBoard.
 *
 * Units    metrics.jsonl: loss in nats/token; step_seconds and data_seconds of one step; mfu a
 *          share of the peak (1 is all of it); tokens_per_second of all ranks; numbers that are not
 *          finite, and an mfu whose peak is not known, are null.  TensorBoard has torchtitan's tags
 *          and units: throughput(tps) of a rank, mfu(%).
 * Files    A resumed run goes on in the same metrics.jsonl, from which the lines of later steps are
 *          cut.  In the TensorBoard folder each start writes a file of its own, which begins with a
 *          mark that makes TensorBoard drop later steps of earlier files.
 * Ranks    One rank of a run has a struct metrics; what it is handed is reduced already. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "metrics/memory.h"
#include "metrics/metrics_config.h"

#include <stdbool.h>
#include <stdint.h>

struct metrics;

struct metrics_options {
    const struct metrics_config *config;
    const char *dump_folder;
    int64_t first_step; /* steps done before this start: later lines are cut from metrics.jsonl */
    int64_t last_step;  /* for the ETA */
    int num_ranks;
    int64_t rows_per_step, row_tokens;
    double flops_per_token;        /* of the model */
    double causal_flops_per_token; /* of these, what a causal row needs */
    double peak_flops;             /* of one rank; 0: not known */
    double memory_total_bytes;     /* of one rank's device; 0: not known */
};

/* One logged step. */
struct step_metrics {
    int64_t step;
    double loss, max_loss; /* nats/token */
    double grad_norm, lr;
    double parameter_norm; /* 0: not asked for */
    int64_t tokens_seen;   /* since the first step of the run */
    int64_t tokens;        /* since the last logged step, all ranks */
    int64_t steps;         /* since the last logged step */
    int64_t skipped;       /* of those, updates left out */
    double seconds;        /* since the last logged step */
    double data_seconds;   /* of those, waiting for data */
    int64_t memory_bytes;  /* peak of a rank */
};

/* IO: the folder or a file of it cannot be made or written. */
enum status metrics_open(struct metrics **out, const struct metrics_options *o);
void metrics_close(struct metrics *m); /* NULL is fine */
/* Whether steps are to be told with parameter_norm. */
bool metrics_want_parameter_norm(const struct metrics_config *c);
/* What is said at the end of a run. */
void metrics_end(struct metrics *m);
/* Console, metrics.jsonl and TensorBoard; each flushed.  Allocates nothing.  IO. */
enum status metrics_step(struct metrics *m, const struct step_metrics *s);
enum status metrics_validation(struct metrics *m, int64_t step, double loss, double seconds,
                               int64_t tokens, int64_t memory_bytes);
