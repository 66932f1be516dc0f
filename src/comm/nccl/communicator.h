/* communicator.h (comm/nccl) -- a communicator of NCCL or RCCL, and the side stream it works on.
 *
 * Streams  The library opens nccl_library_streams more (commAlloc in its init.cc): one waits for
 *          the end of each transfer, the others have work while connections are made.
 * Ranks    Opening is collective.  Communicators share no resources, as those of ncclCommSplit with
 *          splitShare would: work on one never waits for work on another.
 * Errors   COMM: the library reports an error; the message has its text.  DEVICE: see
 *          side_stream.h.  MEMORY: communicator_prepare lacks device memory. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "comm/comm.h"
#include "comm/nccl/side_stream.h"

#include <stdbool.h>

enum { COMMUNICATOR_ID_BYTES = 128 };

struct communicator {
    int max_blocks;   /* multiprocessors of one transfer; 0: the library's default */
    bool is_on_queue; /* transfers run on the queue's stream, not on one of their own */
    const char *name; /* of its group, for messages */
    int rank, size;
    int close_s;  /* seconds that closing or aborting it may take; 0: COMMUNICATOR_CLOSE_S */
    void *handle; /* ncclComm_t; owned; NULL: closed or aborted */
    struct side_stream stream;
};

extern const char communicator_library[]; /* "NCCL", "RCCL" */

/* A unique id for a new communicator: one rank makes it, and all ranks need it to open. */
enum status communicator_id(unsigned char id[COMMUNICATOR_ID_BYTES]);

/* A communicator to open, and its first transfer, of one element. */
struct communicator_init {
    struct communicator *communicator; /* the fields above `handle` are set */
    unsigned char id[COMMUNICATOR_ID_BYTES];
    enum transfer_kind first;
    int peer; /* as in communicator_issue */
};
/* Communicators of one size that open together; other ranks may list theirs in another order. */
struct communicator_opening {
    struct communicator_init *inits; /* borrowed */
    int count;
    struct queue *queue;
    /* Set by communicator_prepare, for the first transfers. */
    struct arena memory;
    struct side_stream_event done;
};
/* Allocates streams, memory and an event: what can fail on one rank alone.  Ranks then agree, as
 * communicator_open would wait for a rank that failed here. */
enum status communicator_prepare(struct communicator_opening *o);
/* The library connects ranks, for which it allocates device memory and waits for the other ranks,
 * when it first needs their connection (ncclPrepareTasks in NCCL's enqueue.cc), so the first
 * transfers happen here, if there are several ranks.  Shifts and messages need one between their
 * two ranks.  A broadcast connects the library's ring, on which it also makes all-gathers,
 * reduce-scatters and large all-reduces, mostly.  Trees, NVLS, PAT and the pairs of ranks of an
 * all-to-all connect at their first use: most groups never use them, and each has buffers of its
 * own.  RCCL connects trees at once. */
enum status communicator_open(struct communicator_opening *o);
/* After a failure of this or another rank: aborts those that are open, as communicator_abort_all,
 * and frees what communicator_prepare allocated, unless a transfer may still be in flight.  Those
 * that did not open are skipped. */
void communicator_cancel(struct communicator_opening *o);
/* Closing and aborting wait until all ranks of the host do the same: their proxy threads end
 * together (NCCL's user guide: ncclCommDestroy is an intra-node collective call).  A rank that has
 * failed may be the only one, so they wait for at most close_s (close_all, abort_all: that of the
 * first); false: after that the library's call continues in the background, until the process ends.
 *
 * close     Waits for the transfers that were issued, unless the communicator was aborted.
 * close_all Closes them together, in a group call, which has a thread for each.  One by one, two
 *           ranks that begin with different communicators would wait for each other.
 * leave     Frees what is not the library's, without waiting.
 * abort     Ends all its transfers, and waits until the device is idle.
 * abort_all Aborts them together, in a group call: one by one, the first may wait for the transfers
 *           of the next forever (github.com/NVIDIA/nccl/issues/1013).
 *
 * These group calls need the versions that nccl_load requires. */
enum { COMMUNICATOR_CLOSE_S = 10 };
bool communicator_close(struct communicator *c);
bool communicator_close_all(struct communicator *const *all, size_t count);
void communicator_leave(struct communicator *c);
bool communicator_abort(struct communicator *c);
bool communicator_abort_all(struct communicator *const *all, size_t count);

/* Enqueues the transfer on the side stream.  `peer` is a rank of the communicator. */
enum status communicator_issue(struct communicator *c, const struct transfer *t, int peer);
/* Group calls: transfers issued in between start together, so that none that waits for another
 * rank holds up the others.  Call end also after a failure, `issued`, which it returns: a group
 * that stays open defers all later calls. */
enum status communicator_group_start(void), communicator_group_end(enum status issued);
/* An error that occurred since, in the background. */
enum status communicator_async_error(const struct communicator *c);

/* User buffer registration: between nodes the library moves data in this memory without copying
 * it, if the network supports that.  Within a node NCCL since 2.24 does so for memory of
 * ncclMemAlloc, for that of cudaMalloc only with NCCL_LEGACY_CUDA_REGISTER=1 (p2p.cc). */
enum status communicator_register(struct communicator *c, void *at, size_t bytes, void **handle);
void communicator_deregister(struct communicator *c, void *handle);
