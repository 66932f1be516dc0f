/* folder.h -- the folder of a run's checkpoints: list, lock, commit, retention.
 *
 * Only folders named exactly step-<digits> are checkpoints.  Nothing else is ever deleted, except
 * leftovers of a run that died: step-N.tmp, .trash-N-PID, .replaced-N-PID if step-N exists, and
 * files NAME.tmp-PID, also in the folder above, unless a process of this host has that PID. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The folder of the checkpoints of a run, by its dump folder: that which checkpoint.folder in its
 * config.toml names, else checkpoint/.  It may be missing.  Logs a warning if config.toml cannot be
 * read.  Heap. */
char *folder_of_run(const char *run);
/* The same by the value of checkpoint.folder; NULL or "": config.toml has none. */
char *folder_in_run(const char *run, const char *name);

struct folder_steps {
    int64_t *steps; /* ascending; owned */
    size_t count;
};

/* A missing folder has no steps.  IO: it cannot be read. */
enum status folder_steps_read(struct folder_steps *l, const char *folder);
void folder_steps_sort(struct folder_steps *l);
void folder_steps_release(struct folder_steps *l);
enum status folder_steps_count(const char *folder, size_t *count); /* the same, counted only */
char *folder_step_path(const char *folder, int64_t step);          /* heap */
char *folder_temporary_path(const char *folder, int64_t step);     /* of step-N.tmp; heap */
int64_t folder_parse_step(const char *name);                       /* N of step-N, or -1 */
int64_t folder_path_step(const char *path);                        /* the same of PATH/step-N[/] */

/* Creates a run's dump folder and locks it, as runs with other folders of checkpoints would write
 * the same metrics there.  CONFIG: another run holds the lock, for longer than a killed one takes
 * to end. */
enum status folder_lock_run(const char *run, int *lock);
/* The same for a folder of checkpoints; also puts back a checkpoint whose replacement was cut
 * short, and deletes leftovers. */
enum status folder_lock(const char *folder, int *lock);
void folder_unlock(int lock);
/* Whether a run holds the lock.  Unknown: no lock file, or a file system, such as NFS or Lustre,
 * that may not show locks of other hosts. */
enum folder_lock_state { FOLDER_LOCK_free, FOLDER_LOCK_held, FOLDER_LOCK_unknown };
enum folder_lock_state folder_lock_look(const char *folder);

/* Atomically and durably renames a finished temporary folder to its final name.  An existing
 * checkpoint of that name is replaced and deleted afterwards.  After a failure it is put back, and
 * the new one that replaced it has its temporary name again; a warning says if that failed, too. */
enum status folder_commit(const char *folder, const char *temporary, int64_t step);
/* Deletes the oldest checkpoints until `keep` are left (0: deletes none), but never `step`, which
 * was just written, nor `busy`, which is being read (-1: none), nor the newest before step
 * `before` (0: may delete all others).  Warns about those that cannot be deleted. */
void folder_retain(const char *folder, int64_t keep, int64_t step, int64_t busy, int64_t before);
/* Durably moves the steps after `step`, if there are any, to a folder abandoned-<step>-<number>, so
 * that no run resumes from them; `branch` becomes its path, or stays empty.  The oldest move first:
 * after a kill in between, the same command starts from the newest again, as after a kill before
 * the first move, and a second call moves what is left.  Before that the folder gets a copy of
 * the file `keep` (NULL: none), which may be missing; a failure to copy it is a warning.  IO. */
enum status folder_abandon(const char *folder, int64_t step, const char *keep, struct text *branch);
/* Whether steps are in such a folder.  IO: it cannot be read. */
enum status folder_has_abandoned(const char *folder, bool *has);
/* Sum of the sizes of a checkpoint's files, and of all in such folders; what cannot be read is left
 * out. */
uint64_t folder_step_bytes(const char *folder, int64_t step);
double folder_abandoned_bytes(const char *folder);
