/* traced_step.h -- an optimizer step, with a trace of its operations and transfers when
 * profiling.profile_freq says so. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/trainer.h"

/* trainer_step.  A trace that cannot be written is only a warning. */
enum status traced_step_run(struct trainer *t, struct loader *loader, struct step_result *result);
