/* run_checkpoint.h -- a run's training state, to and from its checkpoints; internal to train/.
 *
 * Ranks    Every function is collective, except run_checkpoint_state. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/training_run.h"

/* The buffers and counters that a checkpoint holds; borrowed from the run. */
struct checkpoint_state run_checkpoint_state(struct training_run *r);

/* Saves a checkpoint of the last step, unless one was saved.  Errors: as checkpointer_save. */
enum status run_checkpoint_save(struct training_run *r, bool model_only);
/* A failed save is logged and does not end the run: the next one may succeed.  Only the last one,
 * and the one before a stop, must.  DIVERGED: the state cannot be valid, and guard.nonfinite is not
 * "skip".  DEVICE: memory is faulty.  COMM: a rank is lost. */
enum status run_checkpoint_save_if_possible(struct training_run *r);
/* Saves the state, and waits until it is on disk, before the run ends early.  A failed save in the
 * background is logged, and repeated if it was of this step. */
enum status run_checkpoint_save_now(struct training_run *r);
/* Logs this thread's last failure, `st`: that of a save of this step. */
void run_checkpoint_log_unsaved(const struct training_run *r, enum status st);

/* Fills weights and counters: from the newest checkpoint of this run, else initial_load_path, else
 * random weights.  If a checkpoint is damaged or cannot be read, falls back to the one before. */
enum status run_checkpoint_fill(struct training_run *r);
