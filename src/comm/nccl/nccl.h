/* nccl.h (comm/nccl) -- groups whose transfers are of a device's memory, by NCCL or RCCL, beside
 * what the queue computes.
 *
 * Order    A transfer begins when what the queue was asked for before comm_start is done, and what
 *          it is asked for after comm_wait begins when the transfer is over: the host waits for
 *          neither, save where the group is watched (comm_watch), so that times are true.
 * Sums     Are taken in the library's order, not in that of comm.h, and those of bf16 are rounded
 *          each time a rank adds to them.  The same ranks on the same nodes get the same bits run
 *          after run, and all ranks of a group the same; other layouts, and the CPU, others.
 * Memory   The library's own, for each group and each channel.  A transfer's `work` is not used.
 * Ranks    One thread, the queue's, makes all calls; every rank has a device of its own: with two
 *          on one the library does not come back.  Groups of one have no communicator.
 * Messages Those that comm_expect was told of go over channels, each of its own stream and
 *          communicator: so none waits for another, and a send holds up nothing but what waits for
 *          it.  Others go by way of the host (comm/staged).
 * Errors   COMM: see guard.h; every call from then on has it, comm_all_reduce too. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "tensor/queue.h"

struct nccl;

/* What the groups of a rank share.  A transfer may take most_s, reckoned from when the device comes
 * to it.  IO: the system gives no thread. */
enum status nccl_open(struct nccl **out, struct queue *on, double most_s);
/* After all its groups have been released.  NULL is fine. */
void nccl_close(struct nccl *n);

/* *c, which carries the host's memory, becomes such a group, and so do those split from it; it owns
 * what *c was and counts as that did.  Numbers of the host (comm_all_reduce, comm_agree) go to it
 * as they are.  `name` is for messages and outlives the group.  Collective; after a failure *c is
 * what it was. */
enum status nccl_wrap(struct comm *c, struct nccl *n, const char *name);

/* Two ranks that have the same device: the first such pair; -1, -1: each has its own.  Collective
 * over a group of the host's. */
struct nccl_pair {
    int first, second;
};
enum status nccl_same_device(const struct comm *world, struct queue *on, struct nccl_pair *out);
