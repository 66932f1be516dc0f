/* strict_device.h (tests) -- a queue of the CPU that behaves as if a device were behind it, so that
 * tests without one find what only a device would forbid.
 *
 * Memory   `own` can be touched by the queue's kernels, copies and zeroes only: a read or write by
 *          any other code is a fault.  `shared` is the host's.
 * Order    Late: kernels, and copies within the device, are done only when they are waited for, by
 *          queue_wait or by a copy that the host takes part in; so a missing queue_wait shows.
 * Ranks    May be threads, one each: memory belongs to the thread that took it, and a kernel can
 *          touch what its thread has. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/device.h"

/* From here to strict_close the queue has a device, whose kernels are those of `base`; calls go
 * through strict_ops. */
void strict_open(struct queue *on, const struct ops *base, bool late);
/* What is still waiting to be done is dropped. */
void strict_close(struct queue *on);

extern const struct ops strict_ops;

/* Whether x points into the own memory of a strict device. */
bool strict_owns(const void *x);
/* For what stands for other hardware of the device: memory around x can be touched, by any thread,
 * from strict_reach(x, 1) to strict_reach(x, -1). */
void strict_reach(const void *x, int by);
