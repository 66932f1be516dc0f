// SPDX-License-Identifier: Apache-2.0
#include "model/activation_offload.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/gpu.h"
#include "base/rng.h"
#include "model/shape.h"
#include "model/stage_pass.h"
#include "parallel/plan.h"
#include "test.h"

enum { B = 1, T = 9, N = B * T, BLOCKS = 7, MICROS = 3 };

/* Two stages on one device: the embedding and three blocks, then the other blocks and the head. */
static const struct stage stages[] = {{.begin = 0, .end = 3, .embeds = true},
                                      {.begin = 3, .end = BLOCKS, .heads = true}};
static const struct stage whole = {.begin = 0, .end = BLOCKS, .embeds = true, .heads = true};

/* ALTERNATING: one stage, and each forward is followed by its backward. */
enum placement { RESIDENT, OFFLOADED, ALTERNATING };

struct rig {
    struct model m;
    struct queue *queue;
    struct arena run, step, shared, host;
    struct activation_offload offload;
    struct activations activations;
    struct stage_pass passes[2][MICROS];
    void *between[MICROS], *dx;
    struct microbatch b;
    int stages;
};

static void alloc_passes(struct rig *r)
{
    struct model *m = &r->m;
    size_t n = stage_pass_residual_elements(m, &r->b), each = dtype_bytes(m->dtype);
    stage_pass_alloc_shared(m, &r->b, &r->activations, &r->step);
    r->dx = arena_alloc(&r->step, n, each);
    for (int micro = 0; micro < MICROS; micro++) {
        r->between[micro] = arena_alloc(&r->step, n, each);
        for (int i = 0; i < r->stages; i++) {
            struct stage_pass *p = &r->passes[i][micro];
            stage_pass_alloc(m, &r->b, &r->activations, p, &r->step);
            if (r->stages == 2) *(i ? &p->in_SD : &p->out_SD) = r->between[micro];
        }
    }
}

/* An arena of the device, or a pinned one, filled by hand. */
static void open_arena(struct arena *a, size_t bytes, const struct allocator *allocator)
{
    *a = (struct arena){0};
    CHECK_STATUS(OK, arena_init(a, bytes, allocator));
}

static void fill_weights(struct rig *r, void *weights)
{
    size_t n = r->m.layout.elements;
    float *x = heap(n * sizeof *x);
    bf16 *half = heap(n * sizeof *half);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(0.25 * rng_normal(3, RNG_TEST, 0, i));
        half[i] = bf16_from_f32(x[i]);
    }
    const void *from = r->m.dtype == F32 ? (void *)x : half;
    CHECK_STATUS(OK, queue_copy(r->queue, weights, from, n * dtype_bytes(r->m.dtype)));
    free(x), free(half);
}

/* Microbatch i has the rows that begin with i tokens less. */
static void fill_batch(struct rig *r)
{
    int32_t *ids = arena_alloc(&r->shared, N + MICROS, sizeof *ids);
    int32_t *labels = arena_alloc(&r->shared, N + MICROS, sizeof *labels);
    for (int i = 0; i < N + MICROS; i++) {
        ids[i] = (int32_t)rng_below((uint64_t)r->m.shape.V, 1, RNG_TEST, 1, (uint64_t)i);
        labels[i] = (int32_t)rng_below((uint64_t)r->m.shape.V, 1, RNG_TEST, 2, (uint64_t)i);
    }
    r->b.ids_BT = ids, r->b.labels_BT = labels;
    r->b.loss_BT = arena_alloc(&r->shared, N, sizeof(float));
}

static void rig_open(struct rig *r, enum dtype dtype, enum recompute recompute, int every,
                     enum placement placement)
{
    struct model_shape shape = small_shape();
    shape.L = BLOCKS, shape.rope_theta = 100;
    *r = (struct rig){.b = {.B = B, .T = T, .causal = true, .scale = 1.0f / N}};
    r->stages = placement == ALTERNATING ? 1 : 2;
    CHECK_STATUS(OK, gpu_emu32_open(&r->queue, 0));
    open_arena(&r->run, 1 << 24, queue_device_allocator(r->queue));
    open_arena(&r->shared, 1 << 16, queue_shared_allocator(r->queue));
    r->m.queue = r->queue;
    CHECK_STATUS(OK, model_init(&r->m, &shape, T, 1, &r->run));
    r->m.ops = &gpu_emu32_ops, r->m.plan = plan_single_device(), r->m.dtype = dtype;
    r->m.recompute = recompute, r->m.recompute_every = every;
    void *weights = arena_alloc(&r->run, r->m.layout.elements, dtype_bytes(dtype));
    fill_weights(r, weights);
    r->m.weights = weights;
    r->m.gradients = arena_alloc(&r->run, r->m.layout.elements, sizeof(float));
    fill_batch(r);
    for (int i = 0; i < 2 * MICROS; i++)
        stage_pass_init(&r->passes[i % 2][i / 2], r->stages == 1 ? &whole : &stages[i % 2]);
    r->offload.host = &r->host, r->offload.alternates = placement == ALTERNATING;
    if (placement) r->m.offload = &r->offload;
    alloc_passes(r); /* measures */
    size_t step = r->step.used + (1 << 20), host = r->host.used;
    CHECK(!placement == !host);
    open_arena(&r->step, step, queue_device_allocator(r->queue));
    open_arena(&r->host, host, queue_shared_allocator(r->queue));
    open_arena(&r->queue->scratch, 1 << 20, queue_device_allocator(r->queue));
    alloc_passes(r);
    CHECK(r->host.used == host);
}

static void rig_close(struct rig *r)
{
    for (int i = 0; i < 2 * MICROS; i++) stage_pass_release(&r->passes[i % 2][i / 2]);
    activation_offload_release(&r->offload, r->queue);
    model_release(&r->m);
    arena_release(&r->run), arena_release(&r->step);
    arena_release(&r->shared), arena_release(&r->host);
    gpu_emu32_close(r->queue);
}

static struct microbatch microbatch_of(const struct rig *r, int micro)
{
    struct microbatch b = r->b;
    b.ids_BT += micro, b.labels_BT += micro;
    return b;
}

static void forward(struct rig *r, int micro)
{
    struct microbatch b = microbatch_of(r, micro);
    for (int i = 0; i < r->stages; i++)
        CHECK_STATUS(OK, stage_pass_forward(&r->m, &b, &r->passes[i][micro]));
}

static void backward(struct rig *r, int micro)
{
    struct microbatch b = microbatch_of(r, micro);
    for (int i = r->stages - 1; i >= 0; i--)
        CHECK_STATUS(OK, stage_pass_backward(&r->m, &b, &r->passes[i][micro], r->dx, &r->step));
}

/* Microbatches one after the other, then, in a pipeline, several in flight, whose passes are used
 * again. */
static float *train(struct rig *r, bool alternates)
{
    static const int order[] = {0, ~0, 1, ~1, 0, 1, 2, ~0, 0, ~1, ~2, ~0};
    size_t bytes = r->m.layout.elements * sizeof(float);
    size_t length = alternates ? 4 : sizeof order / sizeof *order;
    float *gradients = heap(bytes);
    CHECK_STATUS(OK, queue_zero(r->queue, r->m.gradients, bytes));
    for (size_t i = 0; i < length; i++)
        order[i] < 0 ? backward(r, ~order[i]) : forward(r, order[i]);
    CHECK_STATUS(OK, queue_copy(r->queue, gradients, r->m.gradients, bytes));
    return gradients;
}

/* With copies that run as late as possible, and as early. */
static void check_gradients(enum dtype dtype, enum recompute recompute, int every,
                            enum placement placement)
{
    struct rig r;
    rig_open(&r, dtype, recompute, every, RESIDENT);
    size_t bytes = r.m.layout.elements * sizeof(float), step = r.step.used;
    float *want = train(&r, placement == ALTERNATING), sum = 0;
    for (size_t i = 0; i < r.m.layout.elements; i++) sum += want[i] * want[i];
    CHECK(sum > 0 && isfinite(sum));
    rig_close(&r);
    for (int eager = 0; eager < 2; eager++) {
        emulator_set_eager_copies(eager);
        rig_open(&r, dtype, recompute, every, placement);
        CHECK(r.step.used < step);
        float *got = train(&r, placement == ALTERNATING);
        CHECK(!memcmp(got, want, bytes));
        free(got);
        rig_close(&r);
        emulator_set_eager_copies(false);
    }
    free(want);
}

TEST(offloaded_activations_give_the_same_gradients)
{
    for (enum placement placement = OFFLOADED; placement <= ALTERNATING; placement++) {
        check_gradients(F32, RECOMPUTE_NONE, 1, placement);
        check_gradients(BF16, RECOMPUTE_SELECTIVE, 1, placement);
        check_gradients(BF16, RECOMPUTE_FULL, 1, placement);
    }
}

TEST(offloaded_activations_may_differ_between_blocks)
{
    check_gradients(BF16, RECOMPUTE_FULL, 2, OFFLOADED);
    check_gradients(BF16, RECOMPUTE_FULL, 2, ALTERNATING);
}

/* Activations that forward has just saved are still on the device. */
static size_t copied_in, copied_out;
static void on_copy(struct copy_observer *o, enum copy_stream stream, size_t bytes)
{
    (void)o;
    *(stream == STREAM_IN ? &copied_in : &copied_out) += bytes;
}
static void ignore(struct copy_observer *o, enum copy_stream stream, const struct copy_event *e)
{
    (void)o, (void)stream, (void)e;
}

/* Counts what a forward and its backward copy, in inputs of a block. */
static void count_copies(enum placement placement, size_t *in, size_t *out)
{
    struct rig r;
    struct copy_observer observer = {on_copy, ignore, ignore};
    rig_open(&r, F32, RECOMPUTE_FULL, 1, placement);
    r.queue->sizing = true, r.queue->copy_observer = &observer;
    size_t each = (size_t)N * (size_t)r.m.shape.D * sizeof(float);
    copied_in = copied_out = 0;
    forward(&r, 0), backward(&r, 0);
    *in = copied_in / each, *out = copied_out / each;
    r.queue->sizing = false, r.queue->copy_observer = NULL;
    rig_close(&r);
}

TEST(activations_of_the_last_blocks_are_not_copied_back)
{
    size_t in, out;
    count_copies(OFFLOADED, &in, &out);
    /* Blocks 1 and 2 of the first stage; of the second, blocks 1 to 3, whose last two are held. */
    CHECK(in == 2 + 1 && out == 2 + 3);
}

TEST(activations_of_the_last_blocks_stay_on_the_device_if_backward_follows)
{
    size_t in, out;
    count_copies(ALTERNATING, &in, &out);
    CHECK(in == BLOCKS - 3 && out == BLOCKS - 3); /* but the first block's input */
}
