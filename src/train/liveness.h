/* liveness.h -- limits how long a run may be without progress.
 *
 * It publishes this rank's limits (base/activity.h).  With several ranks the transport's heartbeats
 * compare all ranks with them (comm/failure_detector.h); with one rank a thread of its own does.
 * Hang     The process reports what it was doing and exits with the code of HANG, without returning
 *          to its caller, which may never return either. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "comm/comm_config.h"
#include "comm/failure_detector.h"
#include "train/stragglers.h"

#include <pthread.h>

enum { LIVENESS_STEPS = 32 }; /* over which the median is taken */

struct liveness {
    const struct comm_config *config; /* borrowed */
    double steps_s[LIVENESS_STEPS];
    int64_t num_steps;
    double begin_s, waited_s;
    /* The thread's, which only one rank has. */
    struct failure_detector detector;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t closing;
    bool is_running, is_closing;
};

/* Makes the calling thread the working thread.  IO: no thread. */
enum status liveness_open(struct liveness *l, const struct comm_config *c,
                          const struct comm *world);
/* Ends the limits and the thread. */
void liveness_close(struct liveness *l);

/* From here on the rank reads the data of this step. */
void liveness_begin_step(struct liveness *l, int64_t step);
/* Updates the limit; returns how long this rank was busy. */
struct straggler_sample liveness_end_step(struct liveness *l);
/* The limit of a step after these steps. */
double liveness_limit_s(const struct liveness *l);
