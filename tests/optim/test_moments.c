// SPDX-License-Identifier: Apache-2.0
#include "optim/moments.h"

#include "backends/cpu/cpu.h"
#include "base/rng.h"
#include "optim/optim.h"
#include "test.h"

/* D is not a multiple of a block; heads of 64 and F allow tensor parallelism over two ranks. */
static struct model_shape shape_of(int F)
{
    return (struct model_shape){.V = 64, .D = 64, .L = 2, .H = 8, .G = 2, .K = 64, .F = F};
}

static bool is_quantized(const struct layout *l, enum param_id id)
{
    return moments_are_quantized(layout_find(l, id, id == PARAM_embed ? -1 : 1));
}

TEST(matrices_are_quantized_and_norms_and_small_tensors_are_not)
{
    struct layout l;
    struct model_shape s = shape_of(512);
    layout_init(&l, &s, 1);
    CHECK(is_quantized(&l, PARAM_embed) && is_quantized(&l, PARAM_mlp_down));
    CHECK(!is_quantized(&l, PARAM_mlp_norm));
    layout_release(&l);
    s.V = 63, s.F = 50; /* 4032 elements; 3200 */
    layout_init(&l, &s, 1);
    CHECK(!is_quantized(&l, PARAM_embed) && !is_quantized(&l, PARAM_mlp_down));
    layout_release(&l);
    s.F = 65; /* 4160 is not a multiple of 256 */
    layout_init(&l, &s, 1);
    CHECK(!is_quantized(&l, PARAM_mlp_down));
    layout_release(&l);
}

/* One rank's state after some steps on gradients that are a function of the element. */
struct part {
    struct layout local;
    struct shard shard;
    struct arena arena;
    struct quantized_moments moments;
    float *weights;
    uint8_t *exp_avg, *exp_avg_sq;
};

static void part_alloc(struct part *p, const struct layout *whole)
{
    moments_alloc(&p->moments, whole, &p->shard, &p->arena);
    p->weights = arena_alloc(&p->arena, p->shard.elements, sizeof *p->weights);
    p->exp_avg = arena_alloc(&p->arena, p->shard.elements, 1);
    p->exp_avg_sq = arena_alloc(&p->arena, p->shard.elements, 1);
}

/* The rank of a 2 x 2 mesh, or with `ranks` 1 the whole model. */
static void part_open(struct part *p, const struct model_shape *s, const struct layout *whole,
                      int rank, int ranks)
{
    int tp = ranks > 1 ? 2 : 1, shards = ranks / tp;
    struct model_shape here = model_shape_slice(s, rank % tp, tp);
    const struct stage all = layout_whole_stage(s);
    *p = (struct part){0};
    layout_init_part(&p->local, &here, &(struct model_part){&all, 1, shards, MOMENTS_ALIGN});
    shard_init_sliced(&p->shard, &p->local, whole,
                      (struct shard_position){rank / tp, shards, rank % tp, tp});
    part_alloc(p, whole); /* measures */
    moments_release(&p->moments);
    CHECK_STATUS(OK, arena_init(&p->arena, p->arena.used, NULL));
    part_alloc(p, whole);
}

static void part_close(struct part *p)
{
    moments_release(&p->moments);
    arena_release(&p->arena);
    shard_release(&p->shard);
    layout_release(&p->local);
}

static void part_step(struct part *p, const struct layout *whole, int64_t step, struct queue *queue)
{
    const struct optimizer_config c = {.lr = 0.1,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .eps = 1e-8,
                                       .weight_decay = 0.1,
                                       .decay_norms = true};
    float *gradients = heap(p->shard.elements * sizeof *gradients);
    for (size_t i = 0; i < p->shard.count; i++)
        for (size_t k = 0; k < p->shard.runs[i].count; k++) {
            const struct shard_run *run = &p->shard.runs[i];
            uint64_t place = whole->tensors[run->tensor].offset + run->first + k;
            gradients[run->at + k] =
                (float)rng_normal(1, RNG_TEST, (uint64_t)step, place) * (float)(1 + place % 300);
        }
    struct optim o = {.config = &c,
                      .layout = whole,
                      .shard = &p->shard,
                      .weights = p->weights,
                      .exp_avg = p->exp_avg,
                      .exp_avg_sq = p->exp_avg_sq,
                      .moments = INT8,
                      .moment_blocks = p->moments.blocks};
    struct optim_update u = {.gradients = gradients, .lr = 0.01, .scale = 0.5, .step = step};
    CHECK_STATUS(OK, optim_step(&o, &ops_cpu_reference, &u, queue));
    free(gradients);
}

static struct store moment(const struct part *p, int which)
{
    return (struct store){.x = which ? p->exp_avg_sq : p->exp_avg,
                          .dtype = INT8,
                          .blocks = &p->moments.blocks[which]};
}

/* Compares a run of a rank's shard with the same elements of the whole model. */
static void compare_run(const struct part *got, const struct shard_run *run,
                        const struct part *want, const struct shard_run *whole)
{
    size_t n = run->count, at = whole->at + run->first - whole->first;
    float *x = heap(n * sizeof *x), *y = heap(n * sizeof *y);
    CHECK(!memcmp(got->weights + run->at, want->weights + at, n * sizeof *x));
    for (int which = 0; which < 2; which++) {
        struct store a = moment(got, which), b = moment(want, which);
        CHECK_STATUS(OK, store_read(&a, run->at, n, x));
        CHECK_STATUS(OK, store_read(&b, at, n, y));
        CHECK(!memcmp(x, y, n * sizeof *x));
    }
    free(x), free(y);
}

TEST(eight_bit_moments_do_not_depend_on_sharding)
{
    struct model_shape s = shape_of(512);
    struct layout whole;
    struct part want, got;
    struct queue *queue;
    CHECK_STATUS(OK, cpu_queue_open(&queue, 2, 1 << 16));
    layout_init(&whole, &s, 1);
    part_open(&want, &s, &whole, 0, 1);
    for (int step = 1; step <= 3; step++) part_step(&want, &whole, step, queue);
    for (int rank = 0; rank < 4; rank++) {
        part_open(&got, &s, &whole, rank, 4);
        for (int step = 1; step <= 3; step++) part_step(&got, &whole, step, queue);
        for (size_t i = 0; i < got.shard.count; i++) {
            const struct shard_run *run = &got.shard.runs[i];
            compare_run(&got, run, &want, &want.shard.runs[run->tensor]);
        }
        part_close(&got);
    }
    part_close(&want);
    layout_release(&whole);
    cpu_queue_close(queue);
}

/* As a checkpoint does: f32 numbers of each run are written to another rank's storage. */
TEST(moments_that_are_read_and_written_back_have_the_same_bits)
{
    struct model_shape s = shape_of(512);
    struct layout whole;
    struct part from, to;
    struct queue *queue;
    CHECK_STATUS(OK, cpu_queue_open(&queue, 2, 1 << 16));
    layout_init(&whole, &s, 1);
    part_open(&from, &s, &whole, 1, 4), part_open(&to, &s, &whole, 1, 4);
    for (int step = 1; step <= 3; step++) part_step(&from, &whole, step, queue);
    for (int which = 0; which < 2; which++)
        for (size_t i = 0; i < from.shard.count; i++) {
            const struct shard_run *run = &from.shard.runs[i];
            float *x = heap(run->count * sizeof *x);
            struct store a = moment(&from, which), b = moment(&to, which);
            CHECK_STATUS(OK, store_read(&a, run->at, run->count, x));
            CHECK_STATUS(OK, store_write(&b, run->at, run->count, x));
            free(x);
        }
    size_t n = from.shard.elements, blocks = blockwise_num_blocks(n);
    CHECK(!memcmp(from.exp_avg, to.exp_avg, n));
    CHECK(!memcmp(from.exp_avg_sq, to.exp_avg_sq, n));
    for (int which = 0; which < 2; which++)
        CHECK(!memcmp(from.moments.blocks[which].scales, to.moments.blocks[which].scales,
                      blocks * sizeof(float)));
    part_close(&from), part_close(&to);
    layout_release(&whole);
    cpu_queue_close(queue);
}

static enum status check_slices(const struct model_shape *s, int slices)
{
    struct model_shape here = model_shape_slice(s, 0, slices);
    const struct stage all = layout_whole_stage(s);
    struct layout whole, local;
    layout_init(&whole, s, 1);
    layout_init_part(&local, &here, &(struct model_part){&all, 1, 1, MOMENTS_ALIGN});
    enum status st = moments_check(&local, &whole, slices);
    layout_release(&local), layout_release(&whole);
    return st;
}

TEST(tensor_parallelism_that_cuts_blocks_is_rejected)
{
    struct model_shape s = shape_of(128);
    CHECK_STATUS(OK, check_slices(&s, 1));
    CHECK_STATUS(CONFIG, check_slices(&s, 2)); /* 64 columns each */
    CHECK_MESSAGE("parallelism.tensor_parallel_degree = 2 cuts blocks of 256 elements of "
                  "model.layers.0.mlp.down_proj.weight (64 x 128): use a degree that leaves slices "
                  "of a multiple of 256 columns");
    s = shape_of(512);
    CHECK_STATUS(OK, check_slices(&s, 2));
    s.V = 142, s.D = 128, s.H = 6, s.G = 3, s.F = 768;
    CHECK_STATUS(CONFIG, check_slices(&s, 3)); /* 48, 47 and 47 tokens: the first is aligned */
    CHECK_MESSAGE("model.embed_tokens.weight (142 x 128)");
    CHECK_MESSAGE("slices of a multiple of 256 elements");
}
