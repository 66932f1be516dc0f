/* watchdog.h (comm/nccl) -- a thread that watches transfers in flight for timeouts and errors.
 *
 * If a rank dies, its peers' GPUs hang in the collective and their hosts hang in synchronization.
 * Errors   If the library reports an error, a transfer or a call takes longer than the time limit,
 *          or a transfer is still in flight when memory or its group is released, the watchdog
 *          aborts all communicators, which ends every wait.  From then on watchdog_enter and
 *          watchdog_leave return COMM, HANG or DEVICE with the reason.  Data of transfers that had
 *          not ended is undefined.
 * Exit     If a call of the library, also the abort, does not return within seconds, the watchdog
 *          reports the reason and ends the process: blocking communicators cannot be aborted while
 *          another thread calls NCCL (its user guide, "Fault Tolerance"), and a communicator that
 *          is being opened waits for its ranks without limit.  The thread that settles or removes
 *          does so, too, if its abort does not return.
 * Threads  All functions are called by the queue's thread. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/nccl/communicator.h"

/* A transfer in flight. */
struct tracked_transfer {
    struct communicator *communicator;
    struct transfer transfer; /* a copy, also for messages */
    /* The caller records `begun` before watchdog_track, and `done` before watchdog_issued. */
    struct side_stream_event begun, done;
    /* The watchdog's. */
    double begun_s; /* when it first saw that the device had begun it; 0: not yet */
    bool is_issued, is_over, is_waited_for, is_settled;
    struct tracked_transfer *next;
};

struct watchdog;

/* timeout_s: time limit of a call, and of a transfer from when the device begins it.  IO: no
 * thread. */
enum status watchdog_open(struct watchdog **out, struct queue *queue, double timeout_s);
/* All communicators have been removed. */
void watchdog_close(struct watchdog *w);

void watchdog_add(struct watchdog *w, struct communicator *c);
/* Waits a few seconds for all transfers in flight, also those that nobody waited for.  If they do
 * not end, aborts all communicators: freeing device memory would wait for them.  Keeps the thread's
 * last failure, as watchdog_remove does. */
void watchdog_settle(struct watchdog *w);
/* Waits a few seconds for transfers in flight, but not for those that nobody waited for; then stops
 * watching the communicator.  Aborts all communicators if a transfer has not ended, or after a
 * failure. */
void watchdog_remove(struct watchdog *w, struct communicator *c);

/* Calls of the library are made between these two: `call` is what they do, for messages, and `c`
 * whose they are.  watchdog_leave returns `status`, that of the calls, or the reason for which they
 * were aborted. */
enum status watchdog_enter(struct watchdog *w, const struct communicator *c, const char *call);
enum status watchdog_leave(struct watchdog *w, enum status status);
/* `status`, or the reason for which transfers were aborted. */
enum status watchdog_check(struct watchdog *w, enum status status);

/* A record for the caller to fill in, and then track or recycle. */
enum status watchdog_acquire(struct watchdog *w, struct tracked_transfer **out);
void watchdog_recycle(struct watchdog *w, struct tracked_transfer *t);
/* Before and after the library's call, which itself may wait for other ranks.  If it failed, the
 * record is dropped. */
void watchdog_track(struct watchdog *w, struct tracked_transfer *t);
void watchdog_issued(struct watchdog *w, struct tracked_transfer *t, bool succeeded);
/* The queue now waits for the transfer; from here on its record is the watchdog's. */
void watchdog_waited(struct watchdog *w, struct tracked_transfer *t);
