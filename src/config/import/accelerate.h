/* accelerate.h -- imports `accelerate launch ... train.py` of frontier-guide. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/import.h"
#include "config/import/shell.h"

/* Translates the launcher's and the program's flags, and the load_dataset call in `program`, the
 * text of train.py (empty: it was not found).  `has_steps`: the user sets training.steps.
 * CONFIG: a flag is unknown, its value is wrong, or one is missing. */
enum status accelerate_import(struct import *im, const struct shell *s, const char *program,
                              bool has_steps);
