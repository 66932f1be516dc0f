/* device_bench.h -- what `llamero bench` measures on a GPU: the device's ceilings, measured with
 * its own operations; each operation of a step compared with the ceiling that bounds it; whole
 * steps.
 *
 * Units    Seconds, FLOP/s, bytes/s (read plus written).  Each figure is the median of `rounds`. An
 *          operation is repeated until a round takes some milliseconds, to hide launch latency.
 * Ceilings A GEMM of large square matrices of random numbers, and a copy. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "perf/op_calls.h"
#include "train/machine.h"

struct device_ceilings {
    double flops[DTYPE_COUNT]; /* FLOP/s of a square GEMM */
    double copy;               /* bytes/s */
    int side;                  /* of the matrices */
};
/* Measures with buffers of `bytes` in total. */
enum status device_bench_ceilings(struct device_ceilings *c, const struct machine *m, size_t bytes,
                                  int rounds);

struct device_bench {
    const struct config *config;
    const struct machine *machine;
    const struct model_shape *shape;
    const struct op_calls *calls;
    int rounds;
    size_t bytes; /* of the buffers that ceilings are measured with */
};

/* Appends the table, and writes the members "ceilings", "operations", "step" of a JSON object. */
enum status device_bench_run(const struct device_bench *b, struct text *table,
                             struct json_writer *w);
