/* local_peers.h -- the processes of the other ranks on this host: whether they live, how
 * they ended, and their activity.
 *
 * Only a process's parent learns by waitpid how it ended.  A pidfd (Linux 5.3) tells every process
 * when it ends, and since Linux 6.15 also how; before that, its entry in /proc does until its
 * parent has waited for it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/failure_detector.h"

struct local_peers;

/* Fills in the identity of this process, and shares its activity. */
void local_peers_identify(struct rank_identity *own);
/* `who`: all ranks, by rank; borrowed. */
struct local_peers *local_peers_make(const struct rank_identity *who, int rank, int size);
void local_peers_free(struct local_peers *p);

/* A rank whose process has ended since the last call, and its status as of waitpid (-1: unknown);
 * *ends: it did so on purpose.  False: none has. */
bool local_peers_find_death(struct local_peers *p, int *rank, int *status, bool *ends);
/* Reads the activity of a rank, also of one that has ended; false: not available. */
bool local_peers_read_activity(const struct local_peers *p, int rank, struct activity *out);
/* The state of a rank's process, as in /proc/PID/stat; 0: not on this host, or not alive.  Of type
 * failure_detector.process_state; `context` is the struct local_peers. */
char local_peers_process_state(void *context, int rank);
