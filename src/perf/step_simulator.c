// SPDX-License-Identifier: Apache-2.0
#include "perf/step_simulator.h"

#include "train/trainer.h"

#include <stdlib.h>

#define OP(name, what_type, io_type)                                                               \
    static enum status report_##name(const struct what_type *what, const struct io_type *io,       \
                                     struct queue *queue)                                          \
    {                                                                                              \
        struct simulated_queue *q = (struct simulated_queue *)queue;                               \
        q->io = io;                                                                                \
        q->on_call(q, &(struct op_call){.op = OP_##name, .what.name = *what});                     \
        return STATUS_OK;                                                                          \
    }
#include "ops/ops.def"
#undef OP

const struct ops step_simulator_ops = {
    .backend = "simulator",
#define OP(name, what, io) .name = report_##name,
#include "ops/ops.def"
#undef OP
};

const struct ops step_simulator_gpu_ops = {
    .backend = "simulator of a GPU",
    .computes_amax = true,
    .logit_rows = GPU_LOGIT_ROWS,
#define OP(name, what, io) .name = report_##name,
#include "ops/ops.def"
#undef OP
};

/* One rank's step.  One clock runs at the hardware's speed, and one more for each hardware rate and
 * for the latency as if that were twice as fast; the differences name the bottleneck. */
struct simulated_rank {
    struct simulated_queue queue; /* first, so that on_call can cast */
    struct comm_observer observer;
    const struct groups *groups;
    struct sim_group sim_groups[GROUP_COUNT];
    struct sim_clock *clocks; /* RESOURCE_COUNT */
    bool updated;
};

static void on_call(struct simulated_queue *queue, const struct op_call *c)
{
    struct simulated_rank *r = (struct simulated_rank *)queue;
    struct op_work w;
    if (c->op == OP_cast && r->updated)
        return; /* a run's first casts, which the dry run does last */
    r->updated = r->updated || c->op == OP_adamw || c->op == OP_apply_update;
    op_work(c, &w);
    for (int i = 0; i < RESOURCE_COUNT; i++) {
        if (c->op == OP_sum_squares) sim_clock_end_microbatches(&r->clocks[i]);
        double gain = w.float8 ? r->clocks[i].hardware.float8 : 1;
        sim_clock_compute(&r->clocks[i], w.buffers[0].dtype, w.flops / gain, w.bytes);
    }
}

static struct simulated_rank *rank_of(struct comm_observer *o)
{
    return (struct simulated_rank *)((char *)o - offsetof(struct simulated_rank, observer));
}

/* The group to which `c` belongs, as itself or as a subgroup: they share transfer counts. */
static enum group group_of(const struct simulated_rank *r, const struct comm *c)
{
    enum group g = 0;
    while (g < GROUP_COUNT - 1 && r->groups->of[g].counts != c->counts) g++;
    return g;
}

static void on_start(struct comm_observer *o, const struct comm *c, const struct transfer *t,
                     size_t bytes)
{
    struct simulated_rank *r = rank_of(o);
    struct sim_group group = r->sim_groups[group_of(r, c)];
    group.size = c->size;
    if (group.on_node > c->size) group.on_node = c->size;
    for (int i = 0; i < RESOURCE_COUNT; i++)
        sim_clock_start_transfer(&r->clocks[i], t, &group, (double)bytes);
}

static void on_wait(struct comm_observer *o, const struct transfer *t)
{
    struct simulated_rank *r = rank_of(o);
    for (int i = 0; i < RESOURCE_COUNT; i++) sim_clock_wait_transfer(&r->clocks[i], t);
}

static enum status simulate_rank(struct sim_clock *clocks, const struct config *c,
                                 const struct model_shape *shape, const struct mesh *mesh)
{
    struct simulated_rank r = {.queue = {.base = {.num_threads = 1}, .on_call = on_call},
                               .observer = {on_start, on_wait},
                               .clocks = clocks};
    struct machine machine = {.ops = &step_simulator_ops, .queue = &r.queue.base, .mesh = *mesh};
    struct memory_plan memory;
    r.groups = &machine.groups;
    groups_init_simulated(&machine.groups, mesh);
    for (enum group g = 0; g < GROUP_COUNT; g++) {
        int near = mesh_group_on_node(mesh, g, (int)clocks[0].hardware.node_ranks);
        r.sim_groups[g] = (struct sim_group){g, mesh_group_size(mesh, g), near};
        machine.groups.planned[g].observer = &r.observer;
    }
    enum status st = trainer_plan(c, shape, &machine, &memory);
    arena_release(&r.queue.base.scratch);
    TRY(st);
    return STATUS_OK;
}

enum status step_simulator_estimate(struct estimate *e, const struct config *c,
                                    const struct model_shape *shape, const struct mesh *mesh,
                                    const struct hardware *hardware)
{
    struct config step = *c;
    struct mesh at = *mesh;
    struct pipeline_config pipeline;
    TRY(config_pipeline(c, mesh, shape->L, &pipeline));
    const struct schedule *s = &pipeline.schedule;
    size_t count = (size_t)s->pp * RESOURCE_COUNT;
    struct sim_clock *clocks = heap(count * sizeof *clocks);
    enum status st = STATUS_OK;
    step.validation.enable = false;
    for (size_t i = 0; i < count; i++)
        clocks[i].hardware =
            estimate_faster_hardware(hardware, (enum resource)(i % RESOURCE_COUNT));
    for (int stage = 0; stage < s->pp; stage++) {
        at.at[AXIS_pp] = stage;
        TRY_OUT(simulate_rank(&clocks[stage * RESOURCE_COUNT], &step, shape, &at));
    }
    estimate_make(e, clocks, s);
out:
    for (size_t i = 0; i < count; i++) sim_clock_release(&clocks[i]);
    free(clocks);
    return st;
}
