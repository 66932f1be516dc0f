/* megatron.h -- imports flags of Megatron-LM's pretrain_gpt.py. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/rules.h"

/* Imports the flags; import_init comes first.  `line`: of the script that has them, or 0.
 * CONFIG: unknown or missing flags, and combinations that Megatron-LM rejects. */
enum status megatron_import(struct import *im, const char *const *words, size_t count, int line);
/* Its part for run length, batch and learning rate. */
enum status megatron_import_schedule(struct import *im, int64_t global_batch);
/* Its part for checkpoints, metrics and validation. */
enum status megatron_import_run(struct import *im, const struct import_layout *l);
