/* staged.h (comm/staged) -- a group whose transfers move device memory through pinned host
 * buffers.  It wraps any group that carries host memory, also one of ranks that share a device.
 *
 * Order    comm_start waits for the work that the queue has.  comm_wait copies what has arrived to
 *          the device as the queue's next work.  Sums are the wrapped group's: those of comm.h,
 *          bit for bit.
 * Memory   Each transfer in flight has a staging buffer of its x, and of working memory if it sums,
 *          in host memory that the device can copy from and to; transfer.work is unused.  Buffers
 *          are reused by later transfers, and grow to the largest.  comm_release frees them, except
 *          those of transfers still in flight, which exist only after a failure.
 * Ranks    As the wrapped group.  One thread, the queue's, starts and waits. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "tensor/queue.h"

/* Turns *c into such a group, and so all groups split from it.  It owns the wrapped group, and
 * keeps its counts.  Collectives of host memory go to the wrapped group. */
enum status staged_wrap(struct comm *c, struct queue *queue);
