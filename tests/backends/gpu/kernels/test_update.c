// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/cpu.h"
#include "backends/gpu/gpu.h"
#include "base/rng.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/float8.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "test.h"

/* A bigram model: row i of its only table has the logits of the token after i. */
enum { N = 70, V = 530, D = 37, TABLE = V * D };

struct model {
    float *w, *m, *v, *dw, *x, *loss, *amax;
    bf16 *rounded;
    struct float8_scale *scale;
    int32_t *ids, *labels;
    double squares;
};

static void model_alloc(struct model *m, struct arena *own, struct arena *shared)
{
    float **const tables[] = {&m->w, &m->m, &m->v, &m->dw};
    for (int i = 0; i < 4; i++) *tables[i] = arena_alloc(own, TABLE, sizeof(float));
    m->x = arena_alloc(own, N * D, sizeof *m->x);
    m->loss = arena_alloc(own, N, sizeof *m->loss);
    m->amax = arena_alloc(own, 1, sizeof *m->amax);
    m->rounded = arena_alloc(own, TABLE, sizeof *m->rounded);
    m->scale = arena_alloc(own, 1, sizeof *m->scale);
    m->ids = arena_alloc(shared, N, sizeof *m->ids);
    m->labels = arena_alloc(shared, N, sizeof *m->labels);
}

static enum status step(struct model *m, const struct ops *ops, struct queue *queue, int number)
{
    struct embedding table = {N, V, D, F32, 0};
    struct cross_entropy entropy = {.N = N, .V = D, .scale = 1.0f / N, .gradient = true};
    struct adamw adam = {.n = TABLE,
                         .lr = 1e-2,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .eps = 1e-8,
                         .weight_decay = 0.1,
                         .scale = 1,
                         .step = number,
                         .copy_dtype = F32};
    struct embedding_fwd forward = {m->ids, m->w, m->x};
    struct embedding_bwd backward = {m->ids, m->x, m->dw};
    struct cross_entropy_io loss = {m->x, m->labels, m->loss, NULL, NULL, NULL, NULL};
    struct adamw_io change = {m->w, m->m, m->v, m->dw, NULL, NULL};
    TRY(queue_zero(queue, m->dw, TABLE * sizeof *m->dw));
    TRY(embedding_forward(ops, &table, &forward, queue));
    TRY(cross_entropy(ops, &entropy, &loss, queue));
    TRY(embedding_backward(ops, &table, &backward, queue));
    struct sum_squares all = {.n = TABLE};
    TRY(sum_squares(ops, &all, &(struct sum_squares_io){m->dw, &m->squares}, queue));
    adam.scale = queue->sizing ? 1 : 1 / (1 + sqrt(m->squares));
    TRY(adamw(ops, &adam, &change, queue));
    struct amax find_amax = {TABLE, F32};
    struct quantize round = {.n = TABLE, .to = E4M3};
    TRY(amax(ops, &find_amax, &(struct amax_io){m->w, m->amax}, queue));
    struct find_scale_io found = {m->amax, NULL, NULL, m->scale};
    TRY(find_scale(ops, &(struct find_scale){.to = E4M3}, &found, queue));
    TRY(quantize(ops, &round, &(struct quantize_io){m->w, m->rounded, m->scale}, queue));
    return STATUS_OK;
}

struct outcome {
    float w[TABLE], loss[N];
    bf16 rounded[TABLE];
    double squares;
};

/* Three steps in the queue's memory, with the scratch that a sizing pass measured. */
static void train(struct outcome *out, const struct ops *ops, struct queue *queue)
{
    struct model m = {0};
    struct arena own, shared;
    queue->sizing = true;
    CHECK_STATUS(OK, step(&m, ops, queue, 1));
    queue->sizing = false;
    size_t bytes = queue->scratch.peak;
    if (bytes) CHECK_STATUS(OK, arena_init(&queue->scratch, bytes, queue_device_allocator(queue)));
    CHECK_STATUS(OK, arena_init(&own, 1 << 20, queue_device_allocator(queue)));
    CHECK_STATUS(OK, arena_init(&shared, 1 << 14, queue_shared_allocator(queue)));
    model_alloc(&m, &own, &shared);
    for (int i = 0; i < TABLE; i++) out->w[i] = (float)rng_normal(1, RNG_TEST, 0, (uint64_t)i);
    CHECK_STATUS(OK, queue_copy(queue, m.w, out->w, sizeof out->w));
    for (int number = 1; number <= 3; number++) {
        for (int n = 0; n < N; n++) {
            m.ids[n] = n % 3 ? n * n * number % V : 7;
            m.labels[n] = n % 10 ? n % D : LABEL_IGNORED;
        }
        CHECK_STATUS(OK, step(&m, ops, queue, number));
        CHECK_STATUS(OK, queue_wait(queue)); /* before the ids change */
    }
    out->squares = m.squares;
    CHECK_STATUS(OK, queue_copy(queue, out->w, m.w, sizeof out->w));
    CHECK_STATUS(OK, queue_copy(queue, out->loss, m.loss, sizeof out->loss));
    CHECK_STATUS(OK, queue_copy(queue, out->rounded, m.rounded, sizeof out->rounded));
    arena_release(&own), arena_release(&shared);
}

static void check_same(const struct outcome *got, const struct outcome *expected)
{
    int differing = 0; /* values halfway between two FP8 values */
    CHECK_NEAR(got->squares, expected->squares, 1e-6);
    for (int n = 0; n < N; n++) CHECK_NEAR((double)got->loss[n], (double)expected->loss[n], 1e-5);
    for (int i = 0; i < TABLE; i++) {
        CHECK_NEAR((double)got->w[i], (double)expected->w[i], 1e-5);
        differing += got->rounded[i] != expected->rounded[i];
    }
    CHECK(differing < TABLE / 1000);
}

TEST(training_steps_in_device_memory_match_the_reference)
{
    struct outcome *expected = heap(sizeof *expected), *got = heap(sizeof *got);
    struct queue *cpu, *queue;
    const struct ops *ops;
    CHECK_STATUS(OK, cpu_queue_open(&cpu, 1, 0));
    train(expected, &ops_cpu_reference, cpu);
    cpu_queue_close(cpu);
    CHECK_STATUS(OK, gpu_emu32_open(&queue, 0));
    ops = &gpu_emu32_ops;
    train(got, ops, queue);
    gpu_emu32_close(queue);
    check_same(got, expected);
    CHECK_STATUS(OK, gpu_emu64_open(&queue, 0));
    ops = &gpu_emu64_ops;
    train(got, ops, queue);
    gpu_emu64_close(queue);
    check_same(got, expected);
    free(expected), free(got);
}
