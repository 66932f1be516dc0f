/* folder.h -- the folder of a run's checkpoints: which are there, which go, who may write.
 *
 * Only folders named exactly step-<digits> are checkpoints; nothing else is ever deleted but our
 * own leftovers (step-N.tmp and .trash-N of a run that died). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct step_list {
    int64_t *steps; /* rising; owned */
    size_t count;
};

/* An absent folder has no steps. */
enum status step_list_read(struct step_list *l, const char *folder);
void step_list_release(struct step_list *l);
char *step_path(const char *folder, int64_t step); /* heap */

/* Makes the folder, takes its lock and clears leftovers.  CONFIG: another run holds it. */
enum status folder_lock(const char *folder, int *lock);
void folder_unlock(int lock);

/* Moves a finished temporary folder to its final name, durably; an older one of that name is
 * replaced, and deleted only then. */
enum status folder_commit(const char *folder, const char *temporary, int64_t step);
/* Deletes the oldest until `keep` are left (0: none is); `step`, just written, always stays.  What
 * cannot be deleted is warned about. */
void folder_retain(const char *folder, int64_t keep, int64_t step);
