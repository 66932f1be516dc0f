/* progress.h -- the progress thread: one thread that advances jobs while others compute.
 *
 * Order    First steps are taken in the order in which the jobs were started.  After that every
 *          pending job gets a step in turn, so none delays another.
 * Waiting  While no job advances, the thread sleeps until its bell is rung: by this process when it
 *          starts a job or waits for one, and by other processes if the bell is in memory that they
 *          share.  Without such a bell it also polls the jobs.
 * Memory   A job belongs to the caller, and stays valid from progress_start to progress_wait. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct progress_job {
    /* Advances the job as far as possible without waiting; sets *is_over when it is complete. */
    enum status (*step)(struct progress_job *job, bool *is_over);
    bool is_background; /* an occasional step suffices while nobody waits; it survives failures */
    /* The progress thread's. */
    bool is_over, has_failed;
    struct progress_job *next;
};

struct progress_thread;

/* Wakes a progress thread, also that of another process; starts as zeros. */
struct progress_bell {
    _Atomic uint32_t rings; /* a futex */
    _Atomic uint32_t is_asleep;
};
void progress_ring(struct progress_bell *bell);

/* `bell`: other processes ring it when a job can advance, so that jobs need not be polled;
 * borrowed.  NULL: they do not.  IO: no thread. */
enum status progress_open(struct progress_bell *bell, struct progress_thread **out);
/* Ends the thread; pending jobs stay as they are. */
void progress_close(struct progress_thread *p);

void progress_start(struct progress_thread *p, struct progress_job *job);
/* Waits until the job is over.  The first failure of any job ends all jobs but those in the
 * background, now and later, and is returned for each; NULL: there was none. */
const struct failure *progress_wait(struct progress_thread *p, struct progress_job *job);
