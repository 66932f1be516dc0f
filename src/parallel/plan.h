/* plan.h -- what happens at the boundaries a model crosses.
 *
 * A plan over several ranks is a table of collectives; alone, every crossing is free. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/boundary.h"

/* The model lies whole on one device, as it does on each of data-parallel ranks. */
const struct plan *plan_alone(void);
