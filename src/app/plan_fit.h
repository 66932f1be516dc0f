/* plan_fit.h -- `plan --fit`: options with which a run fits the memory of its ranks. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/run_memory.h"

/* Prints a table, or one JSON object.  CONFIG: it does not fit with any of the options. */
enum status plan_fit_print(const struct planned_run *r, bool json);
