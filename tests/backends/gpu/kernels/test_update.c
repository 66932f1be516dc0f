// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/cpu.h"
#include "backends/gpu/gpu.h"
#include "base/rng.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/float8.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "test.h"

/* A model of nothing but a table, whose rows are the logits of what follows. */
enum { N = 70, V = 530, D = 37, TABLE = V * D };

struct model {
    float *w, *m, *v, *dw, *x, *loss, *largest;
    bf16 *rounded;
    struct float8_scale *scale;
    int32_t *ids, *labels;
    double squares;
};

static void model_take(struct model *m, struct arena *own, struct arena *shared)
{
    float **const tables[] = {&m->w, &m->m, &m->v, &m->dw};
    for (int i = 0; i < 4; i++) *tables[i] = arena_take(own, TABLE, sizeof(float));
    m->x = arena_take(own, N * D, sizeof *m->x);
    m->loss = arena_take(own, N, sizeof *m->loss);
    m->largest = arena_take(own, 1, sizeof *m->largest);
    m->rounded = arena_take(own, TABLE, sizeof *m->rounded);
    m->scale = arena_take(own, 1, sizeof *m->scale);
    m->ids = arena_take(shared, N, sizeof *m->ids);
    m->labels = arena_take(shared, N, sizeof *m->labels);
}

static enum status step(struct model *m, const struct ops *ops, struct queue *on, int number)
{
    struct embedding table = {N, V, D, F32, 0};
    struct cross_entropy entropy = {.N = N, .V = D, .scale = 1.0f / N, .gradient = true};
    struct adamw adam = {.n = TABLE,
                         .lr = 1e-2,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .eps = 1e-8,
                         .decay = 0.1,
                         .scale = 1,
                         .step = number,
                         .copy_dtype = F32};
    struct embedding_fwd forward = {m->ids, m->w, m->x};
    struct embedding_bwd backward = {m->ids, m->x, m->dw};
    struct cross_entropy_io loss = {m->x, m->labels, m->loss, NULL, NULL};
    struct adamw_io change = {m->w, m->m, m->v, m->dw, NULL, NULL};
    TRY(queue_zero(on, m->dw, TABLE * sizeof *m->dw));
    TRY(embedding_forward(ops, &table, &forward, on));
    TRY(cross_entropy(ops, &entropy, &loss, on));
    TRY(embedding_backward(ops, &table, &backward, on));
    struct sum_squares all = {TABLE};
    TRY(sum_squares(ops, &all, &(struct sum_squares_io){m->dw, &m->squares}, on));
    adam.scale = on->measuring ? 1 : 1 / (1 + sqrt(m->squares));
    TRY(adamw(ops, &adam, &change, on));
    struct amax largest = {TABLE, F32};
    struct quantize round = {.n = TABLE, .to = E4M3};
    TRY(amax(ops, &largest, &(struct amax_io){m->w, m->largest}, on));
    struct find_scale_io found = {m->largest, NULL, NULL, m->scale};
    TRY(find_scale(ops, &(struct find_scale){E4M3}, &found, on));
    TRY(quantize(ops, &round, &(struct quantize_io){m->w, m->rounded, m->scale}, on));
    return STATUS_OK;
}

struct outcome {
    float w[TABLE], loss[N];
    bf16 rounded[TABLE];
    double squares;
};

/* Three steps in memory of the queue, with the scratch that a measuring pass has asked for. */
static void train(struct outcome *out, const struct ops *ops, struct queue *on)
{
    struct model m = {0};
    struct arena own, shared;
    on->measuring = true;
    CHECK_STATUS(OK, step(&m, ops, on, 1));
    on->measuring = false;
    size_t bytes = on->scratch.peak;
    if (bytes) CHECK_STATUS(OK, arena_init(&on->scratch, bytes, queue_memory(on)));
    CHECK_STATUS(OK, arena_init(&own, 1 << 20, queue_memory(on)));
    CHECK_STATUS(OK, arena_init(&shared, 1 << 14, queue_shared(on)));
    model_take(&m, &own, &shared);
    for (int i = 0; i < TABLE; i++) out->w[i] = (float)rng_normal(1, RNG_TEST, 0, (uint64_t)i);
    CHECK_STATUS(OK, queue_copy(on, m.w, out->w, sizeof out->w));
    for (int number = 1; number <= 3; number++) {
        for (int n = 0; n < N; n++) {
            m.ids[n] = n % 3 ? n * n * number % V : 7;
            m.labels[n] = n % 10 ? n % D : LABEL_IGNORED;
        }
        CHECK_STATUS(OK, step(&m, ops, on, number));
        CHECK_STATUS(OK, queue_wait(on)); /* before ids are others */
    }
    out->squares = m.squares;
    CHECK_STATUS(OK, queue_copy(on, out->w, m.w, sizeof out->w));
    CHECK_STATUS(OK, queue_copy(on, out->loss, m.loss, sizeof out->loss));
    CHECK_STATUS(OK, queue_copy(on, out->rounded, m.rounded, sizeof out->rounded));
    arena_release(&own), arena_release(&shared);
}

static void check_same(const struct outcome *got, const struct outcome *want)
{
    int other = 0; /* numbers on the edge between two of eight bits */
    CHECK_NEAR(got->squares, want->squares, 1e-6);
    for (int n = 0; n < N; n++) CHECK_NEAR((double)got->loss[n], (double)want->loss[n], 1e-5);
    for (int i = 0; i < TABLE; i++) {
        CHECK_NEAR((double)got->w[i], (double)want->w[i], 1e-5);
        other += got->rounded[i] != want->rounded[i];
    }
    CHECK(other < TABLE / 1000);
}

TEST(a_step_in_a_devices_own_memory_is_that_of_the_reference)
{
    struct outcome *want = heap(sizeof *want), *got = heap(sizeof *got);
    struct queue *cpu, *on;
    const struct ops *ops;
    CHECK_STATUS(OK, cpu_queue_open(&cpu, 1, 0));
    train(want, &ops_cpu_reference, cpu);
    cpu_queue_close(cpu);
    CHECK_STATUS(OK, gpu_emu32_open(&on, 0));
    ops = &gpu_emu32_ops;
    train(got, ops, on);
    gpu_emu32_close(on);
    check_same(got, want);
    CHECK_STATUS(OK, gpu_emu64_open(&on, 0));
    ops = &gpu_emu64_ops;
    train(got, ops, on);
    gpu_emu64_close(on);
    check_same(got, want);
    free(want), free(got);
}
