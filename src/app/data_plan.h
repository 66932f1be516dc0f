/* data_plan.h -- what a run will read of its sources in each data stage, for `check`.
 *
 * Estimates  The streams draw documents in proportion to the weights, so of a stage's tokens source
 *            i has the share w_i m_i / sum of w m, with m its mean tokens per document
 *            (data/source_estimate.h).  data.order = "megatron" blends samples instead, and knows
 *            how many an epoch has.  NAN: unknown, as a source could not be read. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/preflight.h"
#include "base/json.h"
#include "config/config.h"

#include <stdint.h>

struct planned_source {
    const char *label, *path; /* borrowed from the configuration */
    bool is_checked;          /* it is on this machine */
    double documents;         /* of an epoch, without those held out for validation */
    double tokens_per_document;
    double epochs;       /* at the end of the run */
    size_t repeat_stage; /* where its second epoch begins, about */
    int64_t repeat_step; /* 0: it has none */
};

/* A source in a stage. */
struct planned_reading {
    double share; /* of the draws; of the samples with data.order = "megatron" */
    double documents, tokens;
    double epochs_before, epochs; /* since the start of the run, before and after the stage */
};

struct planned_stage {
    int64_t begin, end; /* it has the steps begin + 1 to end */
    int64_t rows, seq_len;
    struct planned_reading *readings; /* of each source; owned */
};

struct data_plan {
    bool is_exact; /* data.order = "megatron" */
    size_t num_sources, num_stages;
    struct planned_source *sources; /* owned */
    struct planned_stage *stages;   /* owned; without those that begin after training.steps */
};

/* Reads a sample of each source that `p` has found.  Release `d` even after a failure.  Errors:
 * those of source_open and source_estimate_run. */
enum status data_plan_make(struct data_plan *d, const struct config *c, const struct preflight *p);
void data_plan_release(struct data_plan *d);

/* Logs a warning for each source that is read more than once. */
void data_plan_warn(const struct data_plan *d);
void data_plan_describe(const struct data_plan *d, struct text *out);
/* Writes the members "sources" and "stages". */
void data_plan_write(const struct data_plan *d, struct json_writer *w);
