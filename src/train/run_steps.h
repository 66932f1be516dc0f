/* run_steps.h -- the training loop of one stage; internal to train/.
 *
 * Order    A step is trained, logged, validated and saved.
 * Ranks    Collective. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/training_run.h"

/* Opens the outputs and trains from the run's step to r->end.  Before that, a run that counts its
 * steps again saves step 0 and sets the checkpoints of the other count aside, or fails.  REQUEUE:
 * stopped early (stop.h), with a checkpoint saved.  DIVERGED: nonfinite.h, rollback.h, or a state
 * that cannot be saved.  A failure that all ranks know of is returned only after the state of the
 * last whole step is saved, except DEVICE, as the state may be corrupted; a failed save is logged.
 */
enum status run_steps_train(struct training_run *r);
