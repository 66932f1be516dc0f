/* run_memory.h -- how much memory a run will need on each rank, by sizing passes on any machine. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "machine/machine.h"
#include "tokenizer/tokenizer.h"
#include "train/memory_plan.h"

/* A rank of a pipeline stage; the ranks of a stage need the same. */
struct rank_memory {
    struct memory_plan plan;
    struct groups groups; /* its traffic counts in a step */
};

struct run_memory {
    struct machine machine;       /* this one, with the run's mesh */
    struct rank_memory *of_stage; /* owned */
    int stages, fullest;          /* fullest: the stage that needs the most */
};

/* Plans the memory of a run of this shape over `ranks` ranks.  Release `m` even after a failure.
 * A run can be planned without its data: then its memory is left out, with a warning. */
enum status run_memory_plan(struct run_memory *m, const struct config *c,
                            const struct model_shape *shape, const struct tokenizer *t, int ranks);
/* The same without data, program and checkpoints. */
enum status run_memory_plan_steps(struct run_memory *m, const struct config *c,
                                  const struct model_shape *shape, int ranks);
void run_memory_release(struct run_memory *m);

/* Of a rank of the fullest stage. */
const struct rank_memory *run_memory_fullest(const struct run_memory *m);
size_t run_memory_needed(const struct run_memory *m);
/* Bytes that a rank has on device.hardware; on this machine its ranks (device.node_ranks) share. */
enum status run_memory_available(const struct run_memory *m, const struct config *c, double *bytes);
