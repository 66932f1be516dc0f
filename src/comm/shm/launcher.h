/* launcher.h (comm/shm) -- starts the ranks of a run on this host as children of this process, and
 * waits for them.
 *
 * Signals  The launcher passes on signals that ask a program to end, stop or continue.  The ranks
 *          have a process group of their own, so that Ctrl-C reaches each of them once.
 * Ends     When a rank fails, it reports that and the launcher ends the others.  When a rank dies,
 *          the others have some seconds to report what they know of it.  If the launcher itself
 *          dies, the kernel kills the ranks. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>

enum { LAUNCHER_MAX_RANKS = 256 };

/* The environment variables of a rank: its number, the number of ranks, and the file descriptor of
 * the segment. */
#define LAUNCHER_RANK    "LLAMERO_RANK"
#define LAUNCHER_RANKS   "LLAMERO_RANKS"
#define LAUNCHER_SEGMENT "LLAMERO_SEGMENT"

/* Starts `size` ranks, which return with *is_rank true: from here on they are processes of their
 * own.  Call it before the process starts threads.  The launcher returns with *is_rank false when
 * all ranks have ended, and how the run ended: OK, REQUEUE, or the status of the rank that failed,
 * which has reported it.  COMM: a rank died, and no other has reported that.  IO: the system cannot
 * start them.  CONFIG: more ranks than LAUNCHER_MAX_RANKS.  If all ranks were ended by a signal
 * that the launcher passed on, it ends itself by that signal. */
enum status launcher_run(int size, bool *is_rank);
