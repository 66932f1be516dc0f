/* run_state.h -- whether a run is running, and how it ended, judged from what its folder shows.
 *
 * A running process holds a lock on its checkpoint folder (checkpoint/folder.h).  Over a network
 * file system that lock may be invisible here: then a folder that was written moments ago counts as
 * running. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/folder.h"
#include "runs/run_log.h"

#include <stdbool.h>
#include <stdint.h>

/* name, what it means */
#define RUN_STATES(X)                                                                              \
    X(running, "a process is training it")                                                         \
    X(stalled, "a process holds its folder, but has written nothing for long")                     \
    X(finished, "it made all its steps")                                                           \
    X(stopped, "a signal or the end of its job stopped it; the same command resumes it")           \
    X(failed, "it ended with an error, the last one in log.txt")                                   \
    X(killed, "it ended without logging why: killed, out of memory, or its machine stopped")

enum run_state {
#define X(name, text) RUN_##name,
    RUN_STATES(X)
#undef X
        NUM_RUN_STATES
};

struct run_evidence {
    enum folder_lock_state lock;
    double quiet_s;          /* since the run wrote anything */
    double quiet_limit_s;    /* a running one writes more often */
    int64_t step, last_step; /* made, and to make; last_step 0: unknown */
    bool is_saved;           /* the last step's checkpoint exists, or none is due */
    enum run_log_end log_end;
};

enum run_state run_state_judge(const struct run_evidence *e);
const char *run_state_name(enum run_state c); /* "running" */
const char *run_state_text(enum run_state c);
