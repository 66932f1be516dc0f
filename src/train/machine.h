/* machine.h -- what a run computes with, chosen by the command; training never names a backend. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "parallel/mesh.h"
#include "tensor/queue.h"

struct machine {
    const struct ops *ops;
    struct queue *on;
    struct mesh mesh;
    struct comm world; /* every rank, in the order they were started in */
    struct groups groups;
    void *carrier;     /* what the groups of tensors travel with; the command's */
    double peak_flops; /* of one rank, per second, in the computing dtype; 0: unknown */
};
