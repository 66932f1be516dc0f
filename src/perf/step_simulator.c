// SPDX-License-Identifier: Apache-2.0
#include "perf/step_simulator.h"

#include "tensor/device.h"
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

static bool has_native_fp8(const struct queue *queue)
{
    return ((const struct simulated_queue *)queue)->native_fp8;
}

const struct ops step_simulator_ops = {
    .backend = "simulator",
    .has_native_fp8 = has_native_fp8,
#define OP(name, what, io) .name = report_##name,
#include "ops/ops.def"
#undef OP
};

const struct ops step_simulator_gpu_ops = {
    .backend = "simulator of a GPU",
    .computes_amax = true,
    .is_multi_tensor = true,
    .logit_rows = GPU_LOGIT_ROWS,
    .has_native_fp8 = has_native_fp8,
#define OP(name, what, io) .name = report_##name,
#include "ops/ops.def"
#undef OP
};

const struct device step_simulator_gpu_device = {0};

/* One rank's step.  One clock runs at the hardware's speed, and one more for each hardware rate and
 * for the latency as if that were twice as fast; the differences name the bottleneck. */
struct simulated_rank {
    struct simulated_queue queue; /* first, so that on_call can cast */
    struct comm_observer observer;
    struct copy_observer copies;
    const struct groups *groups;
    struct sim_group sim_groups[GROUP_COUNT];
    struct sim_clock *clocks;
    int num_clocks;
    bool updated; /* by the last operation */
};

/* hipBLASLt cannot read the scales of FP8 values: a kernel applies them to its results. */
static bool scales_afterwards(const struct hardware *h)
{
    return h->vendor == VENDOR_amd && !hardware_has_native_fp8(h);
}

/* The cast of all weights with which a run begins: the dry run does it last, after an update. */
static bool is_first_cast(const struct simulated_rank *r, const struct op_call *c)
{
    return c->op == OP_cast && r->updated && c->what.cast.from == F32 && c->what.cast.to == BF16;
}

static void on_call(struct simulated_queue *queue, const struct op_call *c)
{
    struct simulated_rank *r = (struct simulated_rank *)queue;
    struct op_work w;
    if (is_first_cast(r, c)) return;
    r->updated = c->op == OP_adamw || c->op == OP_adamw_8bit || c->op == OP_apply_update ||
                 c->op == OP_update_ema;
    op_work(c, &w);
    for (int i = 0; i < r->num_clocks; i++) {
        if (c->op == OP_sum_squares) sim_clock_end_microbatches(&r->clocks[i]);
        const struct hardware *h = &r->clocks[i].hardware;
        double gain = w.float8 ? h->float8 : 1;
        sim_clock_compute(&r->clocks[i], w.buffers[0].dtype, w.flops / gain, w.bytes);
        if (w.float8 && scales_afterwards(h))
            sim_clock_compute(&r->clocks[i], F32, 0, w.scaling_bytes);
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
    for (int i = 0; i < r->num_clocks; i++)
        sim_clock_start_transfer(&r->clocks[i], t, &group, (double)bytes);
}

static void on_wait(struct comm_observer *o, const struct transfer *t)
{
    struct simulated_rank *r = rank_of(o);
    for (int i = 0; i < r->num_clocks; i++) sim_clock_wait_transfer(&r->clocks[i], t);
}

static struct simulated_rank *rank_of_copies(struct copy_observer *o)
{
    return (struct simulated_rank *)((char *)o - offsetof(struct simulated_rank, copies));
}

static void on_copy(struct copy_observer *o, enum copy_stream stream, size_t bytes)
{
    struct simulated_rank *r = rank_of_copies(o);
    for (int i = 0; i < r->num_clocks; i++) sim_clock_copy(&r->clocks[i], stream, (double)bytes);
}

static void on_record(struct copy_observer *o, enum copy_stream stream, const struct copy_event *e)
{
    struct simulated_rank *r = rank_of_copies(o);
    for (int i = 0; i < r->num_clocks; i++) sim_clock_record(&r->clocks[i], stream, e);
}

static void on_event_wait(struct copy_observer *o, enum copy_stream stream,
                          const struct copy_event *e)
{
    struct simulated_rank *r = rank_of_copies(o);
    for (int i = 0; i < r->num_clocks; i++) sim_clock_wait_event(&r->clocks[i], stream, e);
}

enum status step_simulator_run_rank(const struct rank_simulation *s, struct memory_plan *memory)
{
    struct simulated_rank r = {.queue = {.base = {.num_threads = 1}, .on_call = on_call},
                               .observer = {on_start, on_wait},
                               .copies = {on_copy, on_record, on_event_wait},
                               .clocks = s->clocks,
                               .num_clocks = s->num_clocks};
    bool is_gpu = s->clocks[0].hardware.vendor != VENDOR_none;
    struct machine machine = {.ops = is_gpu ? &step_simulator_gpu_ops : &step_simulator_ops,
                              .queue = &r.queue.base,
                              .mesh = s->mesh};
    r.queue.base.device = is_gpu ? &step_simulator_gpu_device : NULL;
    r.queue.base.copy_observer = &r.copies;
    r.queue.native_fp8 = hardware_has_native_fp8(&s->clocks[0].hardware);
    r.groups = &machine.groups;
    groups_init_simulated(&machine.groups, &s->mesh);
    for (enum group g = 0; g < GROUP_COUNT; g++) {
        bool skips = s->skips_data_parallel && (g == GROUP_shard || g == GROUP_replicate);
        int on_node = mesh_group_on_node(&s->mesh, g, (int)s->clocks[0].hardware.node_ranks);
        r.sim_groups[g] = (struct sim_group){g, mesh_group_size(&s->mesh, g), on_node};
        if (!skips) machine.groups.planned[g].observer = &r.observer;
    }
    enum status st = trainer_plan(s->config, s->shape, &machine, memory);
    arena_release(&r.queue.base.scratch);
    TRY(st);
    return STATUS_OK;
}

struct simulation {
    struct config config; /* a shallow copy */
    const struct model_shape *shape;
    struct mesh mesh;
    const struct schedule *schedule;
    int64_t global_batch_size, rows_each; /* rows_each: of a microbatch, on all readers together */
    int num_clocks;
};

static enum status run_stage(struct simulation *s, int stage, int64_t num_microbatches,
                             struct sim_clock *clocks)
{
    struct memory_plan memory;
    s->mesh.at[AXIS_pp] = stage;
    s->config.training.global_batch_size = s->global_batch_size;
    if (num_microbatches < s->schedule->num_microbatches) {
        s->config.training.global_batch_size = num_microbatches * s->rows_each;
        s->config.training.batch_ramp.count = 0;
    }
    return step_simulator_run_rank(
        &(struct rank_simulation){&s->config, s->shape, s->mesh, clocks, s->num_clocks, false},
        &memory);
}

/* Adds `times` as much as the step of `more` takes longer than that of `fewer`. */
static void extrapolate(struct sim_clock *more, const struct sim_clock *fewer, double times)
{
#define EXTRAPOLATE(field) more->field += times * (more->field - fewer->field)
    double update_s = more->now - more->microbatches_s;
    EXTRAPOLATE(microbatches_s);
    EXTRAPOLATE(matmul_s);
    EXTRAPOLATE(memory_s);
    EXTRAPOLATE(host_s);
    for (enum group g = 0; g < GROUP_COUNT; g++) EXTRAPOLATE(exposed_s[g]);
#undef EXTRAPOLATE
    more->now = more->microbatches_s + update_s;
}

/* Many microbatches are alike: simulates some, and as many without one round of the pipeline. */
static enum status run_stage_or_part(struct simulation *s, int stage, struct sim_clock *clocks)
{
    enum { MIN_SIMULATED = 4 };
    int all = s->schedule->num_microbatches, round = s->schedule->pp;
    int more = round * (MIN_SIMULATED / round > 2 ? MIN_SIMULATED / round : 2);
    bool is_elastic = s->config.training.determinism == DETERMINISM_elastic;
    if (is_elastic || all <= 2 * more - round) return run_stage(s, stage, all, clocks);
    struct sim_clock fewer[RESOURCE_COUNT] = {0};
    enum status st = STATUS_OK;
    for (int i = 0; i < s->num_clocks; i++) fewer[i].hardware = clocks[i].hardware;
    TRY_OUT(run_stage(s, stage, more, clocks));
    TRY_OUT(run_stage(s, stage, more - round, fewer));
    for (int i = 0; i < s->num_clocks; i++)
        extrapolate(&clocks[i], &fewer[i], (double)(all - more) / round);
out:
    for (int i = 0; i < s->num_clocks; i++) sim_clock_release(&fewer[i]);
    return st;
}

/* Whether rank `other` of the pipeline computes as many blocks as `rank` in each chunk, and neither
 * embedding nor head. */
static bool is_alike(const struct simulation *s, const int *begin, int rank, int other)
{
    int pp = s->schedule->pp;
    if (!other || rank == pp - 1) return false;
    for (int i = 0; i < s->schedule->chunks; i++) {
        const int *a = &begin[i * pp + rank], *b = &begin[i * pp + other];
        if (a[1] - a[0] != b[1] - b[0]) return false;
    }
    return true;
}

static void copy_clocks(struct sim_clock *to, const struct sim_clock *from, int count)
{
    for (int i = 0; i < count; i++) {
        to[i] = from[i];
        to[i].pending = NULL, to[i].num_pending = to[i].capacity = 0;
        to[i].events = NULL, to[i].num_events = 0;
    }
}

static enum status run_stages(struct simulation *s, const struct stages *stages,
                              struct sim_clock *clocks)
{
    int pp = s->schedule->pp, n = s->num_clocks;
    int *begin = heap(((size_t)pp * (size_t)s->schedule->chunks + 1) * sizeof *begin);
    enum status st = STATUS_OK;
    TRY_OUT(stages_split(stages, begin));
    for (int rank = 0; rank < pp; rank++) {
        int other = rank - 1;
        while (other > 0 && !is_alike(s, begin, rank, other)) other--;
        if (other > 0)
            copy_clocks(&clocks[rank * n], &clocks[other * n], n);
        else
            TRY_OUT(run_stage_or_part(s, rank, &clocks[rank * n]));
    }
out:
    free(begin);
    return st;
}

static enum status estimate(struct estimate *e, struct simulation *s, const struct config *c,
                            const struct hardware *hardware)
{
    struct pipeline_config pipeline;
    s->config = *c;
    s->config.validation.enable = false;
    s->global_batch_size = c->training.global_batch_size;
    TRY(config_pipeline(c, &s->mesh, s->shape->L, &pipeline));
    s->schedule = &pipeline.schedule;
    int64_t rows = config_reader_rows(c, &s->mesh, config_step_rows(c, &s->mesh));
    int64_t each = rows / s->schedule->num_microbatches;
    s->rows_each = each * mesh_group_size(&s->mesh, GROUP_data);
    size_t count = (size_t)s->schedule->pp * (size_t)s->num_clocks;
    struct sim_clock *clocks = heap(count * sizeof *clocks);
    enum status st = STATUS_OK;
    for (size_t i = 0; i < count; i++)
        clocks[i].hardware =
            s->num_clocks == 1
                ? *hardware
                : estimate_faster_hardware(hardware, (enum resource)(i % (size_t)s->num_clocks));
    TRY_OUT(run_stages(s, &pipeline.stages, clocks));
    if (s->num_clocks == 1)
        estimate_make_time(e, clocks, s->schedule);
    else
        estimate_make(e, clocks, s->schedule);
out:
    for (size_t i = 0; i < count; i++) sim_clock_release(&clocks[i]);
    free(clocks);
    return st;
}

enum status step_simulator_estimate(struct estimate *e, const struct config *c,
                                    const struct model_shape *shape, const struct mesh *mesh,
                                    const struct hardware *hardware)
{
    struct simulation s = {.shape = shape, .mesh = *mesh, .num_clocks = RESOURCE_COUNT};
    return estimate(e, &s, c, hardware);
}

enum status step_simulator_time(struct estimate *e, const struct config *c,
                                const struct model_shape *shape, const struct mesh *mesh,
                                const struct hardware *hardware)
{
    struct simulation s = {.shape = shape, .mesh = *mesh, .num_clocks = 1};
    return estimate(e, &s, c, hardware);
}
