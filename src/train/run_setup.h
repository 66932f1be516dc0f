/* run_setup.h -- opens and closes what one stage of a run uses; internal to train/.
 *
 * Ranks    Every function is collective, except run_setup_open_outputs. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/training_run.h"

/* Opens the log, tokenizer, data, trainer and checkpointer, and fills in weights and counters
 * (run_checkpoint_fill).  The caller has set the fields from `whole` to `end`, and `report`; all
 * others are 0.  After an error, run_setup_close closes what is open. */
enum status run_setup_open(struct training_run *r, const struct machine *machine);
/* Opens the files of metrics and, on every rank, of skipped records, which continue after the last
 * step.  Before the first step, and after a rollback, when both are closed. */
enum status run_setup_open_outputs(struct training_run *r);
/* Waits for a pending save, reports the end of the run, and closes what is open.  Returns the first
 * failure: `st`, how the stage ended, or that of the save. */
enum status run_setup_close(struct training_run *r, enum status st);
