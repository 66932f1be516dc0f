/* heartbeat.h -- heartbeats: what every rank reports about itself reaches all ranks, so
 * that they find a rank that hangs or has died (comm/failure_detector.h), also where the launcher
 * does not notice it.
 *
 * Every second a rank sends the newest reports of all ranks to the ranks 1, 2, 4, ... after it, as
 * in a dissemination barrier: after log2(ranks) messages all ranks know a report.
 * Errors   When a rank hangs or has died, one rank reports it and then all end, by `end`.  The
 *          threads that wait for transfers do not return: the rank that hangs could not.
 * Threads  The progress thread calls all functions, except heartbeat_leave and heartbeat_end. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/progress.h"

#include <stddef.h>

struct heartbeat;

enum { HEARTBEAT_CHANNELS = 31 }; /* distances 1, 2, 4, ... between ranks */

/* How heartbeats travel.  On channel i this rank sends to the rank 2^i after it, and receives from
 * the one 2^i before it.  Functions that return bool return false if the transport reports an
 * error: the other rank may have died.  The call is then repeated. */
struct heartbeat_link {
    int rank, size;
    /* Starts a message; the next one of this channel starts after it is complete. */
    bool (*send)(struct heartbeat_link *l, int channel, const void *x, size_t bytes);
    bool (*receive)(struct heartbeat_link *l, int channel, void *x, size_t bytes);
    /* *is_done: whether the last one is complete, or there was none. */
    bool (*test_send)(struct heartbeat_link *l, int channel, bool *is_done);
    bool (*test_receive)(struct heartbeat_link *l, int channel, bool *is_done);
    /* All-gather of `size` parts, of at most 128 bytes each; blocks. */
    enum status (*gather)(struct heartbeat_link *l, void *x, size_t bytes);
    void (*end)(int exit_code); /* ends all ranks */
};

/* Collective; `link` is borrowed.  COMM: the transport reports an error. */
enum status heartbeat_make(struct heartbeat_link *link, struct heartbeat **out);
/* Runs until all ranks have left. */
struct progress_job *heartbeat_job(struct heartbeat *h);
/* This rank has finished: the others need not expect more of it. */
void heartbeat_leave(struct heartbeat *h);
/* This rank has failed, and is about to end all ranks with this code; the job ends when the other
 * ranks know, or after a second. */
void heartbeat_end(struct heartbeat *h, int exit_code);
void heartbeat_free(struct heartbeat *h);
