/* run.h -- a training run from its first step, or from where it resumes, to its last.
 *
 * run.c goes through the stages of the data; run_setup.c opens and closes what one uses,
 * run_checkpoint.c fills and saves its state, run_steps.c is its training loop.
 * Writes to job.dump_folder: config.toml, log.txt, metrics.jsonl, tb/, checkpoint/.
 * Order    A checkpoint is the state after a whole step; a step is logged, validated and saved in
 *          that order, so a resumed run writes the same lines as an uninterrupted one. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "train/machine.h"

/* REQUEUE: stopped early (stop.h), with a checkpoint saved.  DIVERGED: nonfinite.h, rollback.h, or
 * a state that cannot be saved.  Also the errors of opening the tokenizer, the data, a checkpoint
 * or the outputs.  A failure that all ranks know of ends the run only after the state of the last
 * whole step is saved, except DEVICE, as the state may be corrupted; a failed save is logged. */
enum status run_train(const struct config *c, const struct machine *machine);
