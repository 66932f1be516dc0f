/* strict_device.h (tests) -- a CPU queue that imitates a device and is stricter than any, so that
 * tests without a GPU find what a GPU would not allow.
 *
 * Memory   Only the queue's kernels, copies and zeroes can access device memory: any other read or
 *          write faults.  Shared memory is ordinary host memory.
 * Order    Late: kernels, and copies within the device, run only at the next queue_wait, or copy
 *          from or to the host; so a missing queue_wait gives wrong results.
 * Ranks    May be threads, one each: memory belongs to the thread that allocated it, and kernels
 *          can access the memory of their thread. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/device.h"
#include "tensor/queue.h"

/* Gives the queue a strict device until strict_close.  Ops must go through strict_ops, which call
 * those of `base`. */
void strict_open(struct queue *queue, const struct ops *base, bool late);
/* Drops pending work. */
void strict_close(struct queue *queue);

extern const struct ops strict_ops;

/* True if x points into the device memory of a strict device. */
bool strict_owns(const void *x);
/* For code that imitates other hardware of the device, such as a DMA engine: any thread can access
 * the allocation that contains x from strict_reach(x, 1) to strict_reach(x, -1). */
void strict_reach(const void *x, int by);
