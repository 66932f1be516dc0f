// SPDX-License-Identifier: Apache-2.0
#include "optim/optim_offload.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/gpu.h"
#include "optim/moments.h"
#include "optim/optim.h"
#include "test.h"

/* A rank's state in pinned or in device memory, and its gradients. */
struct state {
    struct arena own, shared;
    struct quantized_moments quantized;
    struct optim o;
    struct optim_offload offload;
    float *gradients;
};

struct rig {
    struct model_shape shape;
    struct layout whole, local;
    struct shard shard;
    const struct ops *ops;
    struct queue *queue;
    struct optimizer_config config;
    enum dtype moments;
    bool split, in_f32;
};

static void alloc(struct rig *r, struct state *s, bool offload)
{
    size_t n = r->shard.elements, moment = dtype_bytes(r->moments);
    struct arena *state = offload ? &s->shared : &s->own;
    s->o = (struct optim){.config = &r->config,
                          .layout = &r->whole,
                          .shard = &r->shard,
                          .copy_dtype = r->in_f32 ? F32 : BF16,
                          .moments = r->moments,
                          .seed = 3,
                          .split = r->split};
    if (r->moments == INT8) moments_alloc(&s->quantized, &r->whole, &r->shard, &s->own);
    s->o.moment_blocks = r->moments == INT8 ? s->quantized.blocks : NULL;
    if (r->split)
        s->o.low = arena_alloc(state, n, sizeof *s->o.low);
    else
        s->o.weights = arena_alloc(r->in_f32 ? &s->own : state, n, sizeof *s->o.weights);
    if (!r->in_f32) s->o.copy = arena_alloc(&s->own, n, sizeof(bf16));
    s->o.exp_avg = arena_alloc(state, n, moment);
    s->o.exp_avg_sq = arena_alloc(state, n, moment);
    s->gradients = arena_alloc(&s->own, n, sizeof *s->gradients);
    if (!offload) return;
    s->offload = (struct optim_offload){
        .moments = r->moments, .is_split = r->split, .keeps_weights = r->in_f32};
    optim_offload_init(&s->offload, n, &s->own);
    s->o.offload = &s->offload;
}

static void state_open(struct rig *r, struct state *s, bool offload)
{
    *s = (struct state){0};
    alloc(r, s, offload);
    moments_release(&s->quantized);
    size_t own = s->own.used, shared = s->shared.used + 64;
    s->own = s->shared = (struct arena){0};
    CHECK_STATUS(OK, arena_init(&s->own, own, queue_device_allocator(r->queue)));
    CHECK_STATUS(OK, arena_init(&s->shared, shared, queue_shared_allocator(r->queue)));
    alloc(r, s, offload);
}

static void state_close(struct rig *r, struct state *s)
{
    optim_offload_release(&s->offload, r->queue);
    moments_release(&s->quantized);
    arena_release(&s->own), arena_release(&s->shared);
}

/* Steps without waiting for one another. */
static void take_steps(struct rig *r, struct state *s)
{
    size_t n = r->shard.elements;
    float *gradients = heap(n * sizeof *gradients);
    for (size_t i = 0; i < r->shard.count; i++) /* padding stays 0, as in the model */
        for (size_t k = 0; k < r->shard.runs[i].count; k++) {
            size_t at = r->shard.runs[i].at + k;
            gradients[at] = (float)((at * 37 + 11) % 101) - 50;
        }
    CHECK_STATUS(OK, queue_copy(r->queue, s->gradients, gradients, n * sizeof *gradients));
    for (int step = 1; step <= 4; step++) {
        struct optim_update u = {s->gradients, .lr = 0.01, .scale = 0.1 * step, .step = step};
        CHECK_STATUS(OK, optim_step(&s->o, r->ops, &u, r->queue));
    }
    CHECK_STATUS(OK, queue_wait(r->queue));
    free(gradients);
}

static void check_equal(struct rig *r, const void *x, const void *y, size_t bytes)
{
    unsigned char *a = heap(2 * bytes + 1), *b = a + bytes;
    if (!x && !y) bytes = 0;
    CHECK_STATUS(OK, queue_copy(r->queue, a, x, bytes));
    CHECK_STATUS(OK, queue_copy(r->queue, b, y, bytes));
    CHECK(!memcmp(a, b, bytes));
    free(a);
}

static void check_steps(struct rig *r)
{
    struct state here, away;
    size_t n = r->shard.elements, moment = dtype_bytes(r->moments);
    state_open(r, &here, false);
    state_open(r, &away, true);
    CHECK(away.offload.num_chunks >= 8);
    CHECK(emulator_is_device_memory(here.o.exp_avg) && !emulator_is_device_memory(away.o.exp_avg));
    take_steps(r, &here);
    take_steps(r, &away);
    check_equal(r, here.o.weights, away.o.weights, n * sizeof(float));
    check_equal(r, here.o.low, away.o.low, n * sizeof(uint16_t));
    check_equal(r, here.o.copy, away.o.copy, n * sizeof(bf16));
    check_equal(r, here.o.exp_avg, away.o.exp_avg, n * moment);
    check_equal(r, here.o.exp_avg_sq, away.o.exp_avg_sq, n * moment);
    if (r->moments == INT8)
        for (int i = 0; i < 2; i++)
            check_equal(r, here.quantized.blocks[i].scales, away.quantized.blocks[i].scales,
                        blockwise_num_blocks(n) * sizeof(float));
    state_close(r, &here);
    state_close(r, &away);
}

/* The last rank of four: tensor parallelism cuts rows into runs, FSDP the runs. */
static void rig_open(struct rig *r, bool wave64, enum dtype moments)
{
    *r = (struct rig){.shape = {.V = 70, .D = 64, .L = 2, .H = 4, .G = 2, .K = 16, .F = 88},
                      .ops = wave64 ? &gpu_emu64_ops : &gpu_emu32_ops,
                      .config = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
                      .moments = moments};
    int tp = moments == INT8 ? 1 : 2;
    CHECK_STATUS(OK, wave64 ? gpu_emu64_open(&r->queue, 0) : gpu_emu32_open(&r->queue, 0));
    struct model_shape slice = model_shape_slice(&r->shape, tp - 1, tp);
    const struct stage all = layout_whole_stage(&r->shape);
    layout_init(&r->whole, &r->shape, 1);
    layout_init_part(&r->local, &slice,
                     &(struct model_part){&all, 1, 2, moments == INT8 ? MOMENTS_ALIGN : 0});
    shard_init_sliced(&r->shard, &r->local, &r->whole, (struct shard_position){1, 2, tp - 1, tp});
}

static void rig_close(struct rig *r, bool wave64)
{
    shard_release(&r->shard);
    layout_release(&r->local), layout_release(&r->whole);
    wave64 ? gpu_emu64_close(r->queue) : gpu_emu32_close(r->queue);
}

/* With copies that run as late as possible, and as early. */
static void check_moments(enum dtype moments)
{
    for (int i = 0; i < 4; i++) {
        struct rig r;
        rig_open(&r, i & 1, moments);
        emulator_set_eager_copies(i & 2);
        check_steps(&r);
        r.split = true;
        check_steps(&r);
        r.split = false, r.in_f32 = true;
        check_steps(&r);
        emulator_set_eager_copies(false);
        rig_close(&r, i & 1);
    }
}

TEST(offloaded_float32_state_has_the_same_bits) { check_moments(F32); }
TEST(offloaded_bfloat16_moments_have_the_same_bits) { check_moments(BF16); }
TEST(offloaded_8_bit_moments_have_the_same_bits) { check_moments(INT8); }

TEST(a_step_reads_what_the_queue_wrote_to_the_offloaded_state_before)
{
    struct rig r;
    struct state here, away;
    rig_open(&r, false, F32);
    size_t bytes = r.shard.elements * sizeof(float);
    state_open(&r, &here, false), state_open(&r, &away, true);
    take_steps(&r, &here), take_steps(&r, &away);
    emulator_set_eager_copies(true);
    struct state *states[] = {&here, &away};
    for (int i = 0; i < 2; i++) { /* without waiting in between */
        struct state *s = states[i];
        struct optim_update u = {s->gradients, .lr = 0.01, .scale = 1, .step = 5};
        CHECK_STATUS(OK,
                     copy_stream_copy(r.queue, STREAM_QUEUE, s->o.exp_avg, s->gradients, bytes));
        CHECK_STATUS(OK, optim_step(&s->o, r.ops, &u, r.queue));
    }
    CHECK_STATUS(OK, queue_wait(r.queue));
    check_equal(&r, here.o.weights, away.o.weights, bytes);
    check_equal(&r, here.o.exp_avg, away.o.exp_avg, bytes);
    emulator_set_eager_copies(false);
    state_close(&r, &here), state_close(&r, &away);
    rig_close(&r, false);
}

TEST(chunks_of_the_state_are_limited_and_cover_it)
{
    const size_t sizes[] = {1, 255, 5000, (size_t)1 << 27, ((size_t)1 << 27) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct arena run = {0};
        struct optim_offload f = {.moments = F32};
        optim_offload_init(&f, sizes[i], &run);
        CHECK(f.chunk_elements % BLOCKWISE_BLOCK == 0 && f.chunk_elements <= 1 << 22);
        CHECK(f.num_chunks * f.chunk_elements >= sizes[i]);
        CHECK((f.num_chunks - 1) * f.chunk_elements < sizes[i]);
        CHECK(run.used <= OPTIM_OFFLOAD_BUFFERS * (f.chunk_elements * 12 + 3 * ARENA_ALIGN));
    }
}
