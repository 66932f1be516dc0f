/* accelerate.h -- imports `accelerate launch ... train.py` of frontier-guide. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/import.h"
#include "config/import/shell.h"

/* Translates the flags of the launcher and of the program, and the load_dataset call in `program`,
 * the text of train.py (empty: not found).  `has_steps`: the user has set training.steps.
 * CONFIG: a flag is unknown, its value is wrong, or one is missing. */
enum status accelerate_import(struct import *im, const struct shell *s, const char *program,
                              bool has_steps);
