/* step_metrics.h -- inputs of the metrics: facts about the run, and the counters of one step. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "metrics/metrics_config.h"

#include <stdbool.h>
#include <stdint.h>

struct metrics_options {
    const struct metrics_config *config;
    const char *dump_folder;
    const char *config_toml; /* effective, for W&B and MLflow; not used after metrics_open */
    bool is_load_only;       /* metrics.load_only.jsonl: steps that no checkpoint of the run has */
    int64_t first_step;      /* steps completed before this start: later lines are removed */
    bool is_unsaved;         /* saves checkpoints only at signals: keep an earlier start's lines */
    bool validation_due;     /* of first_step: lines of an earlier attempt are removed */
    int64_t last_step, last_rows; /* steps and rows of the whole run; rows: for the ETA */
    int num_ranks;
    int64_t row_tokens;
    double flops_per_token;        /* model FLOPs */
    double causal_flops_per_token; /* the same with causal attention counted as half */
    double peak_flops;             /* of one rank; 0: unknown */
    double memory_total_bytes;     /* of one rank's device; 0: unknown */
};

/* One logged step. */
struct step_metrics {
    int64_t step;
    int64_t rows, rows_done; /* of this step; since the first step of the run */
    double loss, max_loss;   /* nats/token */
    double grad_norm, lr;
    double parameter_norm; /* 0: not computed, see metrics_needs_parameter_norm */
    int64_t tokens_seen;   /* since the first step of the run */
    int64_t tokens;        /* since the last logged step, all ranks */
    int64_t padding;       /* of those, positions without a token */
    int64_t steps;         /* since the last logged step */
    int64_t skipped;       /* of those, steps whose update was skipped */
    double seconds;        /* since the last logged step */
    double data_seconds;   /* of those, time spent waiting for data */
    int64_t memory_bytes;  /* peak of one rank */
};

/* A rollback: the run continues after `step` with the rows after those that it skips. */
struct rollback_metrics {
    int64_t step, from; /* the checkpoint's step, and that of the spike */
    int64_t first_row, last_row;
    double loss; /* of the spike */
};
