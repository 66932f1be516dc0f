/* nonfinite.h -- reports a step with an infinite loss or gradient, or NaN, with the first bad
 * value, and stops the run if guard.nonfinite says so.
 *
 * Order    The first is the one that explains the others: a moment or a weight, from embedding to
 *          head; else a loss, by row; else a gradient, from head to embedding, as backward computes
 *          them.
 * Cost     The search reads the state of all ranks, but only after such a step. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/trainer.h"

/* After a step that was skipped.  `loader` names rows; NULL: another of the peers reads.  DIVERGED:
 * the run must stop; the message, on rank 0, has step, rows, rank and tensor.  Collective. */
enum status nonfinite_handle(const struct trainer *t, const struct loader *loader,
                             const struct step_result *result);
