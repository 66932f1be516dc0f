/* device_bench.h -- what `llamero bench` measures on a GPU: whole steps; the device's ceilings,
 * measured with its own operations; each operation of a step compared with the ceiling that bounds
 * it.
 *
 * Order    Steps, ceilings, operations: most important first, in case the process is killed.
 * Units    Seconds, FLOP/s, bytes/s (read plus written).  Each figure is the median of `rounds`. An
 *          operation is repeated until a round takes some milliseconds, to hide launch latency.
 * Ceilings A GEMM of large square matrices of random numbers, and a copy. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
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
    int64_t parameters;
    const char *output; /* file of the JSON object, rewritten after each measurement; NULL: none */
};

/* Appends the table and the JSON object: the members "step", "ceilings", "operations" as far as
 * they are measured, and "complete".  DIVERGED: a loss is not finite. */
enum status device_bench_run(const struct device_bench *b, struct text *table, struct text *json);
