/* plan_search.h -- `plan --search`: the best layouts for a number of ranks. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/run_memory.h"

/* Prints a table, or one JSON object.  CONFIG: the rows of a step are unknown, or no layout fits
 * the memory of the hardware. */
enum status plan_search_print(const struct planned_run *r, bool json);
