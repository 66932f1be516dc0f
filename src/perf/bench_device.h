/* bench_device.h -- what `llamero bench` measures on a GPU: the device's ceilings, taken with its
 * own operations; each operation of a step beside the one that bounds it; whole steps.
 *
 * Units    Seconds, FLOP/s, bytes/s (read and written).  Each figure is the median of `rounds`; an
 *          operation is repeated until a round takes some milliseconds, as its launch is late.
 * Ceilings A product of large square matrices of random numbers, and a copy. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/calls.h"
#include "train/machine.h"

/* FLOP/s of a product of square matrices; bytes/s. */
struct device_ceilings {
    double flops[DTYPE_COUNT], copy;
    int side; /* of the matrices */
};
/* With buffers of so many bytes. */
enum status device_ceilings_find(struct device_ceilings *c, const struct machine *m, size_t bytes,
                                 int rounds);

struct device_bench {
    const struct config *config;
    const struct machine *machine;
    const struct model_shape *shape;
    const struct call_list *calls;
    int rounds;
    size_t bytes; /* of the buffers that ceilings are taken with */
};

/* The table, and the members "ceilings", "operations", "step" of a JSON object. */
enum status bench_device(const struct device_bench *b, struct text *table, struct text *json);
