/* activity.h -- what the working thread of this process is doing: its step, its phase, its last
 * collective, and a counter of its progress.
 *
 * The process has one record of it.  The working thread writes the record; watchdogs of this
 * process, and of other processes on this host, read it.
 * Threads  The writing functions do nothing unless the working thread (activity_begin) or a helper
 *          (activity_help) calls them.  Reading is for every thread.
 * Cost     A few relaxed atomic stores per call, and two readings of the clock per wait. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* name, text, whether it may take long without progress: then the slow limit applies */
#define ACTIVITY_LIST(X)                                                                           \
    X(starting, "starting", true)                                                                  \
    X(loading, "loading a checkpoint", true)                                                       \
    X(reading, "reading data", false)                                                              \
    X(computing, "forward and backward", false)                                                    \
    X(updating, "updating weights", false)                                                         \
    X(searching, "searching for the first bad value", true)                                        \
    X(agreeing, "agreeing on what follows the step", false)                                        \
    X(reporting, "writing metrics", true)                                                          \
    X(preparing, "opening validation data", true)                                                  \
    X(validating, "validation", false)                                                             \
    X(saving, "saving a checkpoint", true)                                                         \
    X(closing, "closing", true)

enum activity_phase {
#define X(name, text, slow) ACTIVITY_##name,
    ACTIVITY_LIST(X)
#undef X
        ACTIVITY_COUNT
};
const char *activity_phase_text(enum activity_phase phase);

/* A copy of a record. */
struct activity {
    int64_t step; /* from 1; 0: before the first */
    enum activity_phase phase;
    bool is_waiting;      /* for other ranks or for the device */
    bool is_ending;       /* the process ends on purpose, and reports why */
    double limit_s;       /* a longer time without progress is a hang; 0: no limit */
    uint64_t progress;    /* changes whenever there is progress */
    uint64_t collectives; /* collectives and messages started so far */
    int kind;             /* of the last one, as its starter defines kinds */
    int ranks;            /* of its group */
    uint64_t bytes;       /* of one rank's part of it */
};

/* Makes the calling thread the working thread, in phase `starting`.  activity_end ends that, in
 * phase `closing`, and removes the limits. */
void activity_begin(void);
void activity_end(void);
/* Makes the calling thread, unless it is the working thread, a helper: its ticks count while the
 * working thread is in this phase. */
void activity_help(enum activity_phase phase);
/* Limits of a phase's time without progress, for normal and for slow phases; 0: none. */
void activity_set_limits(double normal_s, double slow_s);

void activity_set_step(int64_t step);
void activity_enter(enum activity_phase phase);
/* Counts one unit of progress. */
void activity_tick(void);
/* Bytes were read, written or transferred: progress in slow phases only, since a loop that reads
 * data forever makes none. */
void activity_tick_io(void);
/* A collective or message starts. */
void activity_start_collective(int kind, uint64_t bytes, int ranks);
/* The working thread begins to wait, and has waited; the latter takes the former's result. */
double activity_begin_wait(void);
void activity_end_wait(double begin_s);
/* Seconds that the working thread has waited so far. */
double activity_waited_s(void);
/* Records that the process ends on purpose; for every thread. */
void activity_set_ending(void);

/* Ends the process at once.  For watchdogs: a working thread that hangs cannot return to main. */
void activity_exit(int exit_code) __attribute__((noreturn));
/* Writes the line to stderr and ends the process in `seconds`; a later call, of any watchdog,
 * replaces an earlier one, and 0 seconds revokes it. */
void activity_exit_in(unsigned seconds, int exit_code, const char *line);
/* Call it before you report this thread's last failure: records the ending, and ends the process
 * after two seconds, because the working thread may hold a lock that reporting needs. */
void activity_start_ending(enum status failure);
/* Reports this thread's last failure and ends the process with its exit code. */
void activity_exit_after(enum status failure) __attribute__((noreturn));

/* A record in memory. */
struct activity_record;
/* `r` NULL: of this process. */
void activity_read(const struct activity_record *r, struct activity *out);
/* Moves this process's record into memory that other processes can map, and returns its file
 * descriptor; -1: not supported, and the record stays where it is.  Call it before the working
 * thread writes. */
int activity_share(void);
/* Maps the shared record of another process; NULL: impossible.  It stays readable when that process
 * has ended. */
const struct activity_record *activity_map(int pid, int fd);
void activity_unmap(const struct activity_record *r);
