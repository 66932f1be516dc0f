/* staged.h (comm/staged) -- a group whose transfers are of a device's memory, by way of the
 * host's: any group that carries the host's memory becomes one, also of ranks that share a device.
 *
 * Order    comm_start waits for what the queue was asked for before.  comm_wait puts what has come
 *          where it belongs, as the queue's next work.  Sums are the wrapped group's: those of
 *          comm.h, bit for bit.
 * Memory   A transfer under way has a copy of its x, and `work` where it sums, in the host's memory
 *          that the device shares; its own `work` is not used.  That memory is kept for the next
 *          one, and grows with the largest.  comm_release gives it back, save that of transfers
 *          still under way: a run that ends so has failed.
 * Ranks    As the wrapped group's.  One thread, the queue's, starts and waits. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "tensor/queue.h"

/* *c becomes such a group, and so do those split from it; it owns what *c was and counts as that
 * did.  Numbers of the host (comm_all_reduce, comm_agree) go to it as they are. */
enum status staged_wrap(struct comm *c, struct queue *on);
