/* run_report.h -- what a run logs at its start and at its end; internal to train/.
 *
 * Only rank 0 logs.  A report spans all stages of the data, so its owner keeps it between them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/training_run.h"

struct run_report {
    bool has_begun;
    double begin_s;                   /* of the first step of this start */
    int64_t begin_step, begin_tokens; /* completed before it */
    double best_loss;                 /* of validation, since this start; NAN: none */
    int64_t best_step;
};

/* Logs the run's header, unless an earlier stage did: model, ranks and device, data, steps, output.
 * Call it once the state to start from is loaded. */
void run_report_begin(struct run_report *t, const struct training_run *r);
/* Notes a validation's loss. */
void run_report_validation(struct run_report *t, int64_t step, double loss);
/* Forgets a validation of a later step, after a rollback. */
void run_report_rollback(struct run_report *t, int64_t step);
/* Logs what the run did, where its model is, and which command uses it.  `is_complete`: all steps
 * are done; otherwise it was stopped and can be resumed. */
void run_report_end(const struct run_report *t, const struct training_run *r, bool is_complete);
