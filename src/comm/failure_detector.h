/* failure_detector.h -- finds ranks that hang or have died, from what every rank reports about
 * itself.
 *
 * The transport of the reports, a watchdog, calls failure_detector_poll regularly and
 * failure_detector_merge with reports that arrive; it may stop at any time.
 * Hang     A rank that makes no progress for its limit, while it is not waiting for others; or all
 *          ranks, when all of them wait.  The limit is that of its activity (base/activity.h).
 * Death    A rank whose process has ended, where the transport can know it, or a rank that has been
 *          silent for SILENCE_LIMIT_S.
 * Time     The caller's: no clock is read.  So time in which this process did not run, because it
 *          was stopped or the machine slept, need not count. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/activity.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { SILENCE_LIMIT_S = 8 }; /* a rank of another host counts as dead if silent for longer */

enum rank_state {
    RANK_RUNNING,
    RANK_LEFT,   /* it has finished */
    RANK_ENDING, /* it ends because of a failure that it reports itself */
    RANK_DEAD,   /* its process has ended without saying so */
};

/* What a rank reports about itself; the same in the messages between ranks. */
struct rank_report {
    uint32_t beat;   /* number of the report; a higher one is newer.  0: none yet */
    int32_t code;    /* RANK_ENDING: exit code.  RANK_DEAD: status as of waitpid; -1: unknown */
    int32_t ranks;   /* of the group of its last collective */
    uint8_t state;   /* enum rank_state */
    uint8_t phase;   /* enum activity_phase */
    uint8_t kind;    /* of its last collective: enum transfer_kind */
    uint8_t waiting; /* bool */
    int64_t step;
    uint64_t collectives, bytes; /* started so far; of the last one */
    float idle_s, limit_s;       /* time without progress, and its limit; limit 0: none */
};

struct rank_identity {
    char host[64];
    int32_t pid;
    int32_t activity; /* file descriptor of activity_share, or -1 */
    uint64_t kernel;  /* the same for processes that see each other's PIDs */
};

struct failure_detector {
    int rank, size;
    struct rank_report *reports; /* by rank */
    double *silent_s;            /* since the last new report, by rank */
    double unchanged_s;          /* since a rank's state changed */
    struct rank_identity *who;   /* by rank */
    /* The state of a rank's process, as in /proc/PID/stat; 0: unknown, or it has ended.
     * NULL: always unknown. */
    char (*process_state)(void *context, int rank);
    void *context;
    uint64_t progress; /* of this process, at the last poll */
    double idle_s;
};

/* The caller fills in d->who. */
void failure_detector_init(struct failure_detector *d, int rank, int size);
void failure_detector_release(struct failure_detector *d);

/* elapsed_s have passed: renews this rank's report from its activity. */
void failure_detector_poll(struct failure_detector *d, double elapsed_s);
/* Takes those of `reports`, by rank, that are newer; returns whether a rank's state changed. */
bool failure_detector_merge(struct failure_detector *d, const struct rank_report *reports);
/* Sets the state of a rank that this one observed.  Returns false if that was known. */
bool failure_detector_set_state(struct failure_detector *d, int rank, enum rank_state state,
                                int code);
/* Its last report becomes `a`. */
void failure_detector_set_activity(struct failure_detector *d, int rank, const struct activity *a);

/* HANG, COMM: the run hangs, or a rank died; the message names ranks, processes and what they did.
 * *ending: a rank has failed, reports that itself, and is about to end all ranks with this exit
 * code; 0: none. */
enum status failure_detector_check(const struct failure_detector *d, int *ending);
/* COMM: a rank died, as failure_detector_check says. */
enum status failure_detector_check_deaths(const struct failure_detector *d);
/* After check failed: whether this rank should report it.  The others wait for that. */
bool failure_detector_is_reporter(const struct failure_detector *d);
/* Logs a line for every rank. */
void failure_detector_log_ranks(const struct failure_detector *d);
