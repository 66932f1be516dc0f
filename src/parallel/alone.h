/* alone.h -- the plan of a model that lies whole on one device.
 *
 * Ranks    Every crossing is free, so data-parallel ranks use it, too. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/boundary.h"

const struct plan *plan_alone(void);
