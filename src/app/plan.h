/* plan.h -- the memory of a run, for commands other than `plan`. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "config/config.h"

#include <stddef.h>

/* Bytes of the rank that needs the most, without data, program and checkpoints.  A model without a
 * vocabulary size has its flavor's.  CONFIG: the model does not fit the mesh. */
enum status plan_memory_bytes(const struct config *c, int ranks, size_t *bytes);
