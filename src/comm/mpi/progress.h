/* progress.h (comm/mpi) -- one thread that moves jobs on while others compute.
 *
 * Order    First steps are taken in the order in which the jobs were started; then every job under
 *          way gets a step in turn, so none holds up another.
 * Memory   A job is its starter's, from progress_start to progress_wait. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>

struct job {
    /* Does what can be done without waiting for anybody; sets *is_over when nothing is left. */
    enum status (*step)(struct job *job, bool *is_over);
    bool is_background;       /* a step now and then will do, while nobody waits */
    bool is_over, has_failed; /* progress's, like what follows */
    struct job *next;
};

struct progress;

/* IO: the system gives no thread. */
enum status progress_open(struct progress **out);
/* Ends the thread; jobs under way stay as they are. */
void progress_close(struct progress *p);

void progress_start(struct progress *p, struct job *job);
/* Until the job is over.  After the first failure of any job every job is over with that, and gets
 * it here; NULL: there was none. */
const struct failure *progress_wait(struct progress *p, struct job *job);
