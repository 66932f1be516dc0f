/* rig.h -- a small model with weights, gradients, arenas and a batch, for tests. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/shape.h"
#include "test.h"

#include "backends/cpu/cpu.h"
#include "base/rng.h"
#include "model/single_stage.h"
#include "ops/cross_entropy.h"
#include "ops/update.h"
#include "parallel/plan.h"

struct rig {
    struct model m;
    struct ops ops;
    struct queue *queue, *sizing;
    struct arena run, step;
    float *weights, *gradients;
    void *half; /* the weights in the model's dtype, if that is not f32 */
    struct microbatch b;
    int32_t *ids, *labels, *start, *end, *best;
    float *loss;
    double valid; /* labels that count */
};

static inline struct model_shape rig_shape(void)
{
    struct model_shape s = small_shape();
    s.L = 3, s.rope_theta = 100;
    return s;
}

/* Weights of order 0.2: large enough that every path matters in f32. */
static inline void rig_weights(struct rig *r)
{
    const struct layout *l = &r->m.layout;
    for (int i = 0; i < l->num_tensors; i++)
        for (size_t j = 0; j < l->tensors[i].elements; j++) {
            double u = rng_normal(3, RNG_TEST, (uint64_t)i, j);
            bool is_norm = params[l->tensors[i].id].init == PARAM_INIT_ONES;
            r->weights[l->tensors[i].offset + j] = (float)(is_norm ? 1 + 0.2 * u : 0.25 * u);
        }
}

/* Casts the weights to the model's dtype. */
static inline void rig_cast(struct rig *r)
{
    if (r->m.dtype == F32) return;
    struct cast what = {.n = r->m.layout.elements, .to = r->m.dtype};
    CHECK_STATUS(OK, cast(&r->ops, &what, &(struct cast_io){r->weights, r->half}, r->queue));
}

static inline void rig_batch(struct rig *r, int B, int T)
{
    size_t N = (size_t)B * (size_t)T;
    r->ids = heap(N * sizeof *r->ids), r->labels = heap(N * sizeof *r->labels);
    r->best = heap(N * sizeof *r->best), r->loss = heap(N * sizeof *r->loss);
    r->start = heap(N * sizeof *r->start), r->end = heap(N * sizeof *r->end);
    r->valid = 0;
    for (size_t i = 0; i < N; i++) {
        r->ids[i] = (int32_t)rng_below((uint64_t)r->m.shape.V, 1, RNG_TEST, 1, i);
        r->labels[i] = (int32_t)rng_below((uint64_t)r->m.shape.V, 1, RNG_TEST, 2, i);
        if (i % 7 == 3) r->labels[i] = LABEL_IGNORED;
        r->valid += r->labels[i] != LABEL_IGNORED;
    }
    r->b = (struct microbatch){.B = B,
                               .T = T,
                               .ids_BT = r->ids,
                               .labels_BT = r->labels,
                               .causal = true,
                               .scale = (float)(1 / r->valid),
                               .loss_BT = r->loss,
                               .best_BT = r->best};
}

/* Documents of `length` tokens within each row. */
static inline void rig_documents(struct rig *r, int length)
{
    for (int i = 0; i < r->b.B * r->b.T; i++) {
        int t = i % r->b.T, first = t / length * length;
        r->start[i] = first;
        r->end[i] = first + length < r->b.T ? first + length : r->b.T;
    }
    r->b.start_BT = r->start, r->b.end_BT = r->end;
}

static inline void rig_open(struct rig *r, const struct model_shape *s, enum dtype dtype, int B,
                            int T)
{
    *r = (struct rig){.ops = ops_cpu_reference};
    CHECK_STATUS(OK, arena_init(&r->run, 1 << 20, NULL));
    CHECK_STATUS(OK, cpu_queue_open(&r->queue, 2, 1 << 22));
    CHECK_STATUS(OK, cpu_queue_open(&r->sizing, 2, 0));
    r->sizing->sizing = true;
    CHECK_STATUS(OK, model_init(&r->m, s, T, 1, &r->run));
    r->m.ops = &r->ops, r->m.plan = plan_single_device(), r->m.queue = r->queue, r->m.dtype = dtype;
    size_t n = r->m.layout.elements;
    r->weights = heap(n * sizeof(float)), r->gradients = heap(n * sizeof(float));
    r->half = heap(n * sizeof(bf16));
    r->m.weights = dtype == F32 ? (void *)r->weights : r->half;
    r->m.gradients = r->gradients;
    rig_weights(r);
    rig_cast(r);
    rig_batch(r, B, T);
}

static inline void rig_close(struct rig *r)
{
    void *owned[] = {r->weights, r->gradients, r->half, r->ids, r->labels,
                     r->start,   r->end,       r->best, r->loss};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) free(owned[i]);
    model_release(&r->m);
    arena_release(&r->run);
    arena_release(&r->step);
    cpu_queue_close(r->queue);
    cpu_queue_close(r->sizing);
}

typedef enum status rig_pass(const struct model *m, const struct microbatch *b, struct arena *step);

/* Bytes of step arena that the pass needs, by a sizing pass. */
static inline size_t rig_size(struct rig *r, rig_pass *pass)
{
    struct arena none = {0};
    struct model m = r->m;
    struct microbatch b = r->b;
    m.queue = r->sizing, m.weights = NULL, m.gradients = NULL;
    b.ids_BT = b.labels_BT = NULL, b.loss_BT = NULL;
    CHECK_STATUS(OK, pass(&m, &b, &none));
    CHECK(none.used == 0 && !none.overflow);
    return none.peak;
}

/* Runs the pass in an arena of exactly the size it needs. */
static inline void rig_run(struct rig *r, rig_pass *pass)
{
    arena_release(&r->step);
    CHECK_STATUS(OK, arena_init(&r->step, rig_size(r, pass), NULL));
    CHECK_STATUS(OK, pass(&r->m, &r->b, &r->step));
    CHECK(r->step.peak == r->step.size && r->step.used == 0);
}

static inline double rig_loss(struct rig *r)
{
    double sum = 0;
    rig_run(r, single_stage_evaluate);
    for (int i = 0; i < r->b.B * r->b.T; i++) sum += r->loss[i];
    return sum / r->valid;
}

/* Computes the gradients of the batch, from zero. */
static inline void rig_train(struct rig *r)
{
    memset(r->gradients, 0, r->m.layout.elements * sizeof(float));
    rig_run(r, single_stage_train);
}
