/* guard.h (comm/nccl) -- a thread that looks after transfers under way: a device that waits for
 * others does so forever, and so does a host that waits for the device.
 *
 * Errors   Where the library has something to complain of, or a transfer takes longer than it may
 *          from when the device has come to it, all links are cut: nothing waits any longer, and
 *          every guard_enter from then on is COMM, with the reason.  What transfers have moved is
 *          then good for nothing.
 * Threads  All functions are for the thread of the queue. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/nccl/link.h"

/* A transfer under way. */
struct flight {
    struct link *link;
    struct transfer what;         /* a copy: what to tell of it */
    struct lane_mark begun, done; /* set by the caller before guard_watch, guard_issued */
    /* The guard's. */
    double seen_s; /* when it was first seen to have begun; 0: it has not */
    bool is_issued, is_over, is_waited_for, is_settled;
    struct flight *next;
};

struct guard;

/* IO: the system gives no thread. */
enum status guard_open(struct guard **out, struct queue *on, double most_s);
/* After all links have been removed. */
void guard_close(struct guard *g);

void guard_add(struct guard *g, struct link *l);
/* Waits some seconds for what is under way there, and lets go of the link; what nobody has waited
 * for, or is not over then, or where something has failed, is cut off instead. */
void guard_remove(struct guard *g, struct link *l);

/* Between these two calls of the library are made.  Leaving returns how they went, or what they
 * were cut off for. */
enum status guard_enter(struct guard *g);
enum status guard_leave(struct guard *g, enum status how);

/* One to fill in, to be watched or put back. */
enum status guard_take(struct guard *g, struct flight **out);
void guard_put_back(struct guard *g, struct flight *f);
/* Around the library's call, which may wait for other ranks, too.  Not `well`: it is forgotten. */
void guard_watch(struct guard *g, struct flight *f);
void guard_issued(struct guard *g, struct flight *f, bool well);
/* The queue waits for it, so its starter is done with it: from here on it is the guard's. */
void guard_waited(struct guard *g, struct flight *f);
