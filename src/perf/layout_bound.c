// SPDX-License-Identifier: Apache-2.0
#include "perf/layout_bound.h"

#include "base/heap.h"
#include "perf/step_simulator.h"

#include <math.h>
#include <stdlib.h>

/* Rounding of sums, and the first microbatch, whose gradients are not accumulated. */
static const double SLACK = 0.999;

struct block_cost {
    int tp, cp, rows; /* rows 0: an empty entry */
    enum recomputation recomputation;
    double block_s, embedding_s, head_s;  /* of a microbatch, forward and backward */
    double state_bytes, activation_bytes; /* of a block: unsharded by FSDP; of a microbatch */
};

enum { TABLE = 1 << 16 }; /* entries of a hash table, few of which are used */

struct layout_bounds {
    const struct layout_choices *all;
    const struct cost_model *model;
    struct block_cost table[TABLE];
    int count;
};

struct layout_bounds *layout_bounds_open(const struct layout_choices *all,
                                         const struct cost_model *m)
{
    struct layout_bounds *b = heap(sizeof *b);
    b->all = all, b->model = m;
    return b;
}

void layout_bounds_close(struct layout_bounds *b) { free(b); }

/* --- blocks --- */

/* One microbatch through a stage of two: [0] the embedding and blocks, [1] blocks and the head. */
static enum status simulate_stages(const struct layout_bounds *b, const struct layout_choice *x,
                                   int blocks, double seconds[2], struct memory_plan *first)
{
    struct model_shape shape = *b->all->shape;
    struct layout_choices all = *b->all;
    struct config c;
    struct mesh mesh;
    shape.L = 2 * blocks;
    all.shape = &shape, all.step_rows = x->rows;
    layout_choice_apply(x, &all, &c, &mesh);
    c.training.batch_ramp.count = 0;
    c.training.determinism = DETERMINISM_layout;
    c.training.canonical_microbatches = 0;
    c.validation.enable = false;
    c.parallelism.pipeline_parallel_first_stage_less_layers = 0;
    c.parallelism.pipeline_parallel_last_stage_less_layers = 0;
    for (int stage = 1; stage >= 0; stage--) {
        struct sim_clock clock = {.hardware = b->model->hardware};
        clock.hardware.host_bandwidth = INFINITY; /* more blocks may hide more of the copies */
        mesh.at[AXIS_pp] = stage;
        const struct rank_simulation s = {&c, &shape, mesh, &clock, 1, true};
        enum status st = step_simulator_run_rank(&s, first);
        seconds[stage] = clock.microbatches_s;
        sim_clock_release(&clock);
        TRY(st);
    }
    return STATUS_OK;
}

static double state_bytes(const struct memory_plan *p)
{
    return (double)(p->bytes[MEMORY_weights] + p->bytes[MEMORY_compute_weights] +
                    p->bytes[MEMORY_optimizer] + p->bytes[MEMORY_gradients]);
}

static enum status measure(const struct layout_bounds *b, struct block_cost *k)
{
    struct layout_choice x = {.rows = k->rows,
                              .chunks = 1,
                              .recomputation = k->recomputation,
                              .sharding = SHARDING_zero2};
    struct memory_plan small, large;
    double one[2], two[2];
    for (enum axis a = 0; a < AXIS_COUNT; a++) x.degree[a] = 1;
    x.degree[AXIS_tp] = k->tp, x.degree[AXIS_cp] = k->cp, x.degree[AXIS_pp] = 2;
    TRY(simulate_stages(b, &x, 1, one, &small));
    TRY(simulate_stages(b, &x, 2, two, &large));
    k->block_s = fmin(two[0] - one[0], two[1] - one[1]);
    k->embedding_s = fmax(one[0] - k->block_s, 0), k->head_s = fmax(one[1] - k->block_s, 0);
    k->state_bytes = (state_bytes(&large) - state_bytes(&small)) * k->cp;
    k->activation_bytes = (double)large.bytes[MEMORY_activations];
    k->activation_bytes -= (double)small.bytes[MEMORY_activations];
    return STATUS_OK;
}

static enum status find_cost(struct layout_bounds *b, const struct layout_choice *x,
                             const struct block_cost **out)
{
    int tp = x->degree[AXIS_tp], cp = x->degree[AXIS_cp];
    unsigned hash = (unsigned)tp * 2654435761u ^ (unsigned)cp * 40503u ^ (unsigned)x->rows * 97u;
    unsigned at = (hash * 31u + (unsigned)x->recomputation) % TABLE;
    struct block_cost *k;
    for (;; at = (at + 1) % TABLE) {
        k = &b->table[at];
        if (!k->rows) break;
        if (k->tp == tp && k->cp == cp && k->rows == x->rows &&
            k->recomputation == x->recomputation) {
            *out = k;
            return STATUS_OK;
        }
    }
    BUG_IF(++b->count == TABLE);
    struct block_cost new = {
        .tp = tp, .cp = cp, .rows = x->rows, .recomputation = x->recomputation};
    TRY(measure(b, &new));
    *k = new, *out = k;
    return STATUS_OK;
}

/* --- a layout --- */

/* A rank of the pipeline: its blocks, and the time of a microbatch through all its stages. */
static double rank_seconds(const struct block_cost *k, const struct schedule *s, const int *begin,
                           int rank, int *blocks)
{
    *blocks = 0;
    for (int i = 0; i < s->chunks; i++) {
        int stage = schedule_stage(s, rank, i);
        *blocks += begin[stage + 1] - begin[stage];
    }
    return *blocks * k->block_s + (rank == 0 ? k->embedding_s : 0) +
           (rank == s->pp - 1 ? k->head_s : 0);
}

/* Each rank computes all microbatches, the first of which has passed the ranks before it, and whose
 * gradients return through them. */
static double pipeline_seconds(const struct block_cost *k, const struct schedule *s,
                               const int *begin)
{
    double before = 0, longest = 0;
    for (int rank = 0, blocks; rank < s->pp; rank++) {
        double each = rank_seconds(k, s, begin, rank, &blocks);
        longest = fmax(longest, s->num_microbatches * each + before);
        before += each / s->chunks;
    }
    return longest;
}

/* Weights of a block on a tensor-parallel rank, without vectors. */
static double block_elements(const struct model_shape *s, int tp)
{
    double D = s->D, attention = (double)s->H * s->K, kv = 2.0 * s->G * s->K;
    return D * (2 * attention + kv + 3.0 * s->F) / tp;
}

/* Seconds of the transfers that shard weights and gradients of `elements`. */
static double shard_seconds(const struct layout_bounds *b, const struct layout_choice *x,
                            double elements, double microbatches)
{
    enum { BYTES = 2 }; /* bf16, at least */
    const struct hardware *h = &b->model->hardware;
    struct mesh mesh = mesh_single_rank();
    for (enum axis a = 0; a < AXIS_COUNT; a++) mesh.degree[a] = x->degree[a];
    double size = mesh_group_size(&mesh, GROUP_shard);
    double on_node = mesh_group_on_node(&mesh, GROUP_shard, (int)h->node_ranks);
    double gathers = x->sharding == SHARDING_zero3 ? microbatches : 1;
    double reduces = x->sharding == SHARDING_zero1 ? 1 : microbatches;
    double bytes = (gathers + reduces) * elements * BYTES * (size - 1) / size;
    double links = on_node > 1 ? bytes / (h->node_bandwidth * SIM_CLOCK_LINK_EFFICIENCY) : 0;
    double network =
        on_node < size ? bytes / on_node / (h->network_bandwidth * SIM_CLOCK_LINK_EFFICIENCY) : 0;
    return fmax(links, network);
}

/* Memory of the first rank, which has the most microbatches in flight. */
static double memory_bytes(const struct layout_bounds *b, const struct layout_choice *x,
                           const struct block_cost *k, const struct schedule *s, const int *begin)
{
    bool is_f32 = training_compute_dtype(&b->all->config->training) == F32;
    double shards = (double)x->degree[AXIS_dp_shard] * x->degree[AXIS_cp];
    double whole = block_elements(b->all->shape, x->degree[AXIS_tp]), bytes = 0;
    if (shards > 1 && x->sharding != SHARDING_zero3) bytes += whole * (is_f32 ? 4 : 2);
    if (shards > 1 && x->sharding == SHARDING_zero1) bytes += whole * 2;
    bytes += k->state_bytes / shards;
    double all = 0;
    for (int i = 0; i < s->chunks; i++) {
        int stage = schedule_stage(s, 0, i), blocks = begin[stage + 1] - begin[stage];
        all += blocks * (bytes + k->activation_bytes * schedule_max_in_flight(s, 0, i));
    }
    return SLACK * all + (double)b->model->other_bytes;
}

enum status layout_bounds_find(struct layout_bounds *b, const struct layout_choice *x,
                               struct layout_bound *out)
{
    const struct block_cost *k;
    struct config c;
    struct mesh mesh;
    struct pipeline_config p;
    enum status st = STATUS_OK;
    layout_choice_apply(x, b->all, &c, &mesh);
    TRY(config_pipeline(&c, &mesh, b->all->shape->L, &p));
    TRY(schedule_check(&p.schedule));
    int *begin = heap(((size_t)p.schedule.pp * (size_t)p.schedule.chunks + 1) * sizeof *begin);
    TRY_OUT(stages_split(&p.stages, begin));
    TRY_OUT(find_cost(b, x, &k));
    double compute = SLACK * pipeline_seconds(k, &p.schedule, begin);
    double elements = block_elements(b->all->shape, x->degree[AXIS_tp]) * b->all->shape->L;
    double sharding =
        SLACK * shard_seconds(b, x, elements / p.schedule.pp, p.schedule.num_microbatches);
    out->seconds = fmax(compute, sharding);
    out->expected_s = out->seconds + 0.05 * sharding;
    out->memory_bytes = memory_bytes(b, x, k, &p.schedule, begin);
out:
    free(begin);
    return st;
}
