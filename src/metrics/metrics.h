/* metrics.h -- what a run reports: console line, metrics.jsonl, TensorBoard. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
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
    double flops_per_token;    /* of the model */
    double peak_flops;         /* of one rank */
    double memory_total_bytes; /* of one rank's device */
};

/* One logged step. */
struct step_metrics {
    int64_t step;
    double loss, max_loss; /* nats/token */
    double grad_norm, lr;
    int64_t tokens_seen;  /* since the first step of the run */
    int64_t tokens;       /* since the last logged step, all ranks */
    int64_t steps;        /* since the last logged step */
    double seconds;       /* since the last logged step */
    double data_seconds;  /* of those, waiting for data */
    int64_t memory_bytes; /* peak of a rank */
};

enum status metrics_open(struct metrics **out, const struct metrics_options *o);
void metrics_close(struct metrics *m);
/* Console, metrics.jsonl and TensorBoard; each flushed.  Allocates nothing. */
enum status metrics_step(struct metrics *m, const struct step_metrics *s);
enum status metrics_validation(struct metrics *m, int64_t step, double loss, double seconds,
                               int64_t tokens, int64_t memory_bytes);

/* Peak resident memory of this process. */
int64_t memory_peak_bytes(void);
int64_t memory_total_bytes(void);
