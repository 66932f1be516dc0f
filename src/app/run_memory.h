/* run_memory.h -- the memory that a run will need on each rank, from sizing passes on this machine,
 * over the GPU that device.hardware names if it names one; for `check`, `plan` and `config import`.
 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "machine/machine.h"
#include "perf/layout_cost.h"
#include "tokenizer/tokenizer.h"
#include "train/memory_plan.h"

/* One rank of a pipeline stage; all ranks of a stage need the same. */
struct rank_memory {
    struct memory_plan plan;
    struct groups groups; /* simulated; their counters have the traffic of a step */
};

struct run_memory {
    struct machine machine;       /* this one or the described GPU, with the run's mesh */
    struct described_gpu *gpu;    /* owned; NULL: this machine's device */
    struct rank_memory *of_stage; /* owned */
    int stages, fullest;          /* fullest: the stage that needs the most */
    size_t data_stage;            /* run_memory_plan_run: the one that needs the most */
};

/* Plans the memory of a run of this shape over `ranks` ranks.  Release `m` even after a failure.
 * If the data cannot be opened, a warning is logged, and the loader's memory is not included. */
enum status run_memory_plan(struct run_memory *m, const struct config *c,
                            const struct model_shape *shape, const struct tokenizer *t, int ranks);
/* Plans each data stage of a run (config/data_stages.h), and keeps the one that needs the most. */
enum status run_memory_plan_run(struct run_memory *m, const struct config *c,
                                const struct tokenizer *t, int ranks);
/* run_memory_plan without the memory of data, program and checkpoints. */
enum status run_memory_plan_steps(struct run_memory *m, const struct config *c,
                                  const struct model_shape *shape, int ranks);
/* A run whose layout need not suit its ranks. */
struct planned_run {
    const struct config *config;
    const struct model_shape *shape;
    const struct tokenizer *tokenizer; /* may be NULL */
    int ranks;
    bool has_data_bytes; /* data_bytes, the loader's memory, is known */
    size_t data_bytes;
};
/* Opens only what layouts are compared with (perf/layout_cost.h); the shape is borrowed. */
enum status run_memory_open_model(struct run_memory *m, const struct planned_run *r,
                                  struct cost_model *out);
void run_memory_release(struct run_memory *m);

/* A rank of the fullest stage, and the bytes of its device that it needs. */
const struct rank_memory *run_memory_fullest(const struct run_memory *m);
size_t run_memory_needed(const struct run_memory *m);
/* Bytes that any rank needs of the host of its GPU, at most; 0 on a CPU. */
size_t run_memory_host_needed(const struct run_memory *m);
/* Bytes that a rank has on device.hardware; on this machine the GPU's, or the host's divided by
 * host_ranks, 0: by the ranks of a node (device.node_ranks, or what hardware.h has). */
enum status run_memory_available(const struct run_memory *m, const struct config *c, int host_ranks,
                                 double *bytes);
/* Bytes of host memory that a rank with a GPU has; 0: unknown, or a CPU. */
double run_memory_host_available(const struct run_memory *m, const struct config *c,
                                 int host_ranks);
