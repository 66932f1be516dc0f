/* lifted.h (tests) -- wraps a group that carries device memory, so that the contract's tests
 * (contract.h), which use host memory, run on it: each transfer is copied to device memory and
 * back. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "tensor/queue.h"

/* Turns *c into such a group, and so all groups split from it.  It owns the wrapped group. */
void lifted_wrap(struct comm *c, struct queue *queue);
