/* rewind.h -- going back to an earlier checkpoint of a run (checkpoint.load_step), once.
 *
 * A rewind to step N moves the checkpoints after N away (checkpointer_abandon) and records itself
 * in rewind.json.  A restart of the same command finds the record and resumes from the newest
 * checkpoint of the new branch instead of going back again.
 * Ranks    Rank 0 alone, with the folder locked, except rewind_is_done.
 * Errors   IO, DATA: rewind.json cannot be read, or is not ours. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether the last rewind went to this step. */
enum status rewind_is_done(const char *folder, int64_t step, bool *is_done);
/* After checkpointer_abandon, which gave moved_to. */
enum status rewind_record(const char *folder, int64_t step, const char *moved_to);
/* Removes the record: a later load_step goes back again, also to the same step. */
enum status rewind_forget(const char *folder);
