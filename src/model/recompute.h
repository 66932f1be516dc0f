/* recompute.h -- activation checkpointing: which activations of a block forward saves, and which
 * backward recomputes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "model/model_config.h"

/* What backward recomputes.  NONE: nothing; SELECTIVE: what is cheap (norms, SwiGLU); FULL: the
 * whole block, of which only the input is saved. */
enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTE_COUNT };

/* Reads [activation_checkpoint].  `every`: under RECOMPUTE_FULL only every Nth block is recomputed,
 * the others save all activations.  CONFIG: an option that is neither "op" nor a number. */
enum status recompute_resolve(const struct activation_checkpoint_config *c, enum recompute *kind,
                              int *every);
