/* step_simulator.h -- simulates an optimizer step: the step's own code runs over operations that
 * only report the sizes they were called with, and clocks add up the time of these calls and of
 * every transfer. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "perf/estimate.h"
#include "perf/op.h"
#include "train/memory_plan.h"

/* A queue that executes nothing: each operation of step_simulator_ops calls on_call instead. */
struct simulated_queue {
    struct queue base; /* first, so that the operations' struct queue * can be cast */
    bool native_fp8;   /* of the simulated device */
    void (*on_call)(struct simulated_queue *queue, const struct op_call *c);
    const void *io; /* of that call: the operation's io struct */
};
/* Operations for a struct simulated_queue, and no other queue; of a GPU: with what the GPU
 * backend's table has besides operations. */
extern const struct ops step_simulator_ops, step_simulator_gpu_ops;
/* The device of a simulated GPU's queue, which has memory of its own; nothing is allocated. */
extern const struct device step_simulator_gpu_device;

/* Estimates how long the ranks of a mesh take for a step on this hardware.  Of many microbatches it
 * simulates some and extrapolates; ranks in the middle of a pipeline with equally many blocks are
 * simulated once.  Errors as trainer_plan. */
enum status step_simulator_estimate(struct estimate *e, const struct config *c,
                                    const struct model_shape *shape, const struct mesh *mesh,
                                    const struct hardware *hardware);
/* The same without e->limit and e->saved, which takes a seventh of the clocks. */
enum status step_simulator_time(struct estimate *e, const struct config *c,
                                const struct model_shape *shape, const struct mesh *mesh,
                                const struct hardware *hardware);

/* One rank's step. */
struct rank_simulation {
    const struct config *config;
    const struct model_shape *shape;
    struct mesh mesh;
    struct sim_clock *clocks; /* their hardware is set */
    int num_clocks;
    bool skips_data_parallel; /* transfers of the groups shard and replicate take no time */
};
/* *memory: as trainer_plan, whose errors it has. */
enum status step_simulator_run_rank(const struct rank_simulation *s, struct memory_plan *memory);
