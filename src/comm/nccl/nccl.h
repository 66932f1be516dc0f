/* nccl.h (comm/nccl) -- groups whose transfers move device memory, by NCCL or RCCL, on streams of
 * their own beside the queue's.
 *
 * Order    A transfer begins when the work that the queue had at comm_start is done, and work that
 *          the queue gets after comm_wait begins when the transfer is over.  The host waits for
 *          neither, except where the group has an observer, so that timestamps are
 *          accurate.
 * Sums     Use the library's order, not that of comm.h; a sum of bf16 is rounded each time a rank
 *          adds to it.  All ranks of a group get the same bits, and the same ranks on the same
 *          nodes get them run after run (nccl_request_fixed_order); another layout, or the CPU,
 *          gets others.
 * Memory   The library allocates its own for each group and channel.  transfer.work is unused.
 * Ranks    One thread, the queue's, makes all calls.  Every rank needs a device of its own: with
 *          two ranks on one device NCCL hangs.  A group of one has no communicator.
 * Messages A declared message (comm_declare_p2p) has a channel, with its own stream and
 *          communicator, so a send delays only later messages of the same channel.  Other messages
 *          are staged through the host (comm/staged).
 * Errors   COMM: an error of the library; HANG: a timeout, or a transfer that is still in flight
 *          when memory or its group is released (watchdog.h).  After the first, every call fails
 *          with it, the collectives of host memory too.  If a call of the library does not return,
 *          because a rank never makes it, the process reports that and ends. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "tensor/queue.h"

struct nccl;
struct text;

/* Opens NCCL or RCCL; call before any other function here except nccl_request_fixed_order, which
 * comes first.  UNSUPPORTED: it is not installed, or too old. */
enum status nccl_load(void);

/* Hardware queues that a rank requests, so that no stream waits behind another, and the driver's
 * variable for their number, which it reads when it starts.  At most 32 exist, and more streams
 * than that share them.  A rank has up to 18: the queue's and two for copies, five of groups (pp,
 * replicate, shard, cp, tp) and two of ranks with the same heads or embedding, and of channels four
 * around a ring and four in a pipeline, whatever its schedule.  NCCL opens two streams more for
 * each communicator; they wait for the ends of transfers (its init.cc).  So a ring takes at most
 * 30, a pipeline 33 if each kind of group has several ranks, and both together 48. */
enum { NCCL_HARDWARE_QUEUES = 32 };
extern const char nccl_queues_variable[];

/* Sums have the same order in every run, at the price of NVLink SHARP, unless the user has set
 * NCCL_NVLS_ENABLE.  Call before the first communicator opens. */
void nccl_request_fixed_order(void);

/* Loads it, and appends "NCCL 2.28.3". */
enum status nccl_describe(struct text *out);
/* Loads it, and makes every kind of transfer on this device in a group of one.  COMM: the library
 * failed, or a result is not what was sent. */
enum status nccl_self_test(struct queue *queue);

/* The state that a rank's groups share.  timeout_s: time limit of a call, such as one that opens
 * communicators, and of a transfer from when the device begins it.  IO: no thread. */
enum status nccl_open(struct nccl **out, struct queue *queue, double timeout_s);
/* All its groups have been released.  NULL is fine. */
void nccl_close(struct nccl *n);

/* Turns *c, a group that carries host memory, into such a group, and so all groups split from it.
 * It owns the wrapped group, and keeps its counts.  Collectives of host memory go to the wrapped
 * group.  `name` appears in messages and must outlive the group.  Collective.  On failure *c is
 * unchanged. */
enum status nccl_wrap(struct comm *c, struct nccl *n, const char *name);

/* The first two ranks that share a device; -1, -1: each rank has its own.  Collective over a group
 * that carries host memory. */
struct nccl_pair {
    int first, second;
};
enum status nccl_same_device(const struct comm *world, struct queue *queue, struct nccl_pair *out);
