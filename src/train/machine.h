/* machine.h -- what a run computes on, chosen by the command: backend, ranks and their groups.
 * Training never names a backend. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "parallel/groups.h"
#include "tensor/hardware.h"
#include "tensor/queue.h"

struct machine {
    const struct ops *ops;
    struct queue *queue;
    struct mesh mesh;
    struct comm world; /* all ranks, in launch order */
    struct groups groups;
    void *carrier;                   /* NCCL state of the device groups; owned by the command */
    const struct hardware *hardware; /* a GPU's row in hardware.h; NULL: unknown, or a CPU */
    /* FLOP/s of one rank, in the dtype that machine_measure_peak was called with; of a GPU, in
     * bf16 before that call.  0: unknown. */
    double peak_flops;
};
