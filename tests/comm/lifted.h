/* lifted.h (tests) -- a group for tests of a group that carries a device's memory: it takes
 * transfers of the host's memory, as what comm.h promises is tested with (contract.h), and makes
 * each one of memory that the queue's device has. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "tensor/queue.h"

/* *c becomes such a group, and so do those split from it; it owns what *c was. */
void lifted_wrap(struct comm *c, struct queue *on);
