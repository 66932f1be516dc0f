/* machine.h -- what a run computes on, chosen by the command: backend, ranks and their groups.
 * Training never names a backend. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "parallel/groups.h"
#include "tensor/queue.h"

struct machine {
    const struct ops *ops;
    struct queue *queue;
    struct mesh mesh;
    struct comm world; /* all ranks, in launch order */
    struct groups groups;
    void *carrier; /* device transport of the groups that tensors are sent over; the command's */
    double peak_flops; /* of one rank, per second, in the compute dtype; 0: unknown */
};
