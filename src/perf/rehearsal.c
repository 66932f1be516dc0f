// SPDX-License-Identifier: Apache-2.0
#include "perf/rehearsal.h"

#include "train/trainer.h"

#include <stdlib.h>

#define OP(name, what_type, io_type)                                                               \
    static enum status tell_##name(const struct what_type *what, const struct io_type *io,         \
                                   struct queue *queue)                                            \
    {                                                                                              \
        struct rehearsal *r = (struct rehearsal *)queue;                                           \
        (void)io;                                                                                  \
        r->call(r, &(struct op_call){.op = OP_##name, .what.name = *what});                        \
        return STATUS_OK;                                                                          \
    }
#include "ops/ops.def"
#undef OP

const struct ops rehearsal_ops = {
    .backend = "rehearsal",
#define OP(name, what, io) .name = tell_##name,
#include "ops/ops.def"
#undef OP
};

/* One rank's step, heard by a clock for each resource that may be twice as fast. */
struct listener {
    struct rehearsal rehearsal;
    struct comm_observer observer;
    const struct groups *groups;
    struct sim_group ways[GROUP_COUNT];
    struct sim_clock *clocks; /* RESOURCE_COUNT */
    bool updated;
};

static void hear_call(struct rehearsal *r, const struct op_call *c)
{
    struct listener *l = (struct listener *)r;
    struct op_work w;
    if (c->op == OP_cast && l->updated) return; /* what a run begins with, rehearsed at its end */
    l->updated = l->updated || c->op == OP_adamw;
    op_work(c, &w);
    for (int i = 0; i < RESOURCE_COUNT; i++) {
        if (c->op == OP_sum_squares) sim_clock_end_microbatches(&l->clocks[i]);
        double gain = w.float8 ? l->clocks[i].hardware.float8 : 1;
        sim_clock_compute(&l->clocks[i], w.buffers[0].dtype, w.flops / gain, w.bytes);
    }
}

static struct listener *listener_of(struct comm_observer *w)
{
    return (struct listener *)((char *)w - offsetof(struct listener, observer));
}

/* The group whose transfers are counted there, or a part of it. */
static enum group group_of(const struct listener *l, const struct comm *c)
{
    enum group g = 0;
    while (g < GROUP_COUNT - 1 && l->groups->of[g].counts != c->counts) g++;
    return g;
}

static void hear_start(struct comm_observer *w, const struct comm *c, const struct transfer *t,
                       size_t bytes)
{
    struct listener *l = listener_of(w);
    struct sim_group way = l->ways[group_of(l, c)];
    way.size = c->size;
    if (way.on_node > c->size) way.on_node = c->size;
    for (int i = 0; i < RESOURCE_COUNT; i++)
        sim_clock_start_transfer(&l->clocks[i], t, &way, (double)bytes);
}

static void hear_wait(struct comm_observer *w, const struct transfer *t)
{
    struct listener *l = listener_of(w);
    for (int i = 0; i < RESOURCE_COUNT; i++) sim_clock_wait_transfer(&l->clocks[i], t);
}

static enum status listen(struct sim_clock *clocks, const struct config *c,
                          const struct model_shape *shape, const struct mesh *mesh)
{
    struct listener l = {.rehearsal = {.base = {.num_threads = 1}, .call = hear_call},
                         .observer = {hear_start, hear_wait},
                         .clocks = clocks};
    struct machine machine = {.ops = &rehearsal_ops, .queue = &l.rehearsal.base, .mesh = *mesh};
    struct memory_plan memory;
    l.groups = &machine.groups;
    groups_init_simulated(&machine.groups, mesh);
    for (enum group g = 0; g < GROUP_COUNT; g++) {
        int near = mesh_group_on_node(mesh, g, (int)clocks[0].hardware.node_ranks);
        l.ways[g] = (struct sim_group){g, mesh_group_size(mesh, g), near};
        machine.groups.planned[g].observer = &l.observer;
    }
    enum status st = trainer_plan(c, shape, &machine, &memory);
    arena_release(&l.rehearsal.base.scratch);
    TRY(st);
    return STATUS_OK;
}

enum status rehearsal_estimate(struct estimate *e, const struct config *c,
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
        TRY_OUT(listen(&clocks[stage * RESOURCE_COUNT], &step, shape, &at));
    }
    estimate_make(e, clocks, s);
out:
    for (size_t i = 0; i < count; i++) sim_clock_release(&clocks[i]);
    free(clocks);
    return st;
}
