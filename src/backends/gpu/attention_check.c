// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/attention_check.h"

#include "backends/gpu/flash_attention.h"
#include "backends/gpu/queue.h"
#include "base/rng.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* With documents cuDNN's graph has room for three sequences (cudnn_attention.c): one is empty. */
enum { T = 512, H = 2 };
enum { FIRST_DOCUMENT = 100, WINDOW = 150 /* tokens */ };
/* Of the largest magnitude.  bf16 has steps of 0.4 %, and both sides round the probs. */
static const float TOLERANCE = 0.04f;

static struct attention shape_of(struct attention_masks masks, int K)
{
    return (struct attention){.B = 1,
                              .T = T,
                              .S = T,
                              .H = H,
                              .G = 1,
                              .K = K,
                              .q_stride = H * (size_t)K,
                              .kv_stride = (size_t)K,
                              .scale = 1 / sqrtf((float)K),
                              .causal = true,
                              .window = masks.window ? WINDOW : 0,
                              .dtype = BF16};
}

/* The results of the library, and of our own kernels. */
struct attention_results {
    bf16 *out, *dq, *dk, *dv;
    float *lse;
};
struct attention_rig {
    struct gpu_queue queue; /* the caller's stream, with scratch of its own */
    struct arena memory, shared;
    struct attention shape;
    int32_t *start, *end; /* of each token's document; NULL: no documents */
    bf16 *q, *k, *v, *dout;
    struct attention_results theirs, ours;
    bool has_backward; /* the library computes it, too */
};

static size_t kv_elements(const struct attention_rig *r) { return (size_t)T * (size_t)r->shape.K; }

static size_t q_elements(const struct attention_rig *r) { return H * kv_elements(r); }

static bf16 *alloc(struct attention_rig *r, size_t elements)
{
    return arena_alloc(&r->memory, elements, sizeof(bf16));
}

static void alloc_results(struct attention_rig *r, struct attention_results *x)
{
    x->out = alloc(r, q_elements(r)), x->dq = alloc(r, q_elements(r));
    x->dk = alloc(r, kv_elements(r)), x->dv = alloc(r, kv_elements(r));
    x->lse = arena_alloc(&r->memory, H * T, sizeof *x->lse);
}

static enum status fill(struct attention_rig *r, bf16 *to, size_t elements, uint64_t which)
{
    bf16 *host = heap(elements * sizeof *host);
    for (size_t i = 0; i < elements; i++)
        host[i] = bf16_from_f32((float)rng_normal(0, RNG_TEST, which, i));
    enum status st = queue_copy(&r->queue.base, to, host, elements * sizeof *host);
    free(host);
    return st;
}

static struct attention_fwd forward_of(const struct attention_rig *r,
                                       const struct attention_results *x)
{
    return (struct attention_fwd){.q_BTHK = r->q,
                                  .k_BSGK = r->k,
                                  .v_BSGK = r->v,
                                  .start_BT = r->start,
                                  .end_BT = r->end,
                                  .out_BTHK = x->out,
                                  .lse_BHT = x->lse};
}

static struct attention_bwd backward_of(const struct attention_rig *r,
                                        const struct attention_results *x)
{
    return (struct attention_bwd){.q_BTHK = r->q,
                                  .k_BSGK = r->k,
                                  .v_BSGK = r->v,
                                  .out_BTHK = x->out,
                                  .dout_BTHK = r->dout,
                                  .lse_BHT = x->lse,
                                  .start_BT = r->start,
                                  .end_BT = r->end,
                                  .dq_BTHK = x->dq,
                                  .dk_BSGK = x->dk,
                                  .dv_BSGK = x->dv};
}

/* Runs both; during a sizing pass the buffers are NULL. */
static enum status run(const struct attention_library *l, struct attention_rig *r)
{
    struct queue *queue = &r->queue.base;
    struct attention_fwd theirs = forward_of(r, &r->theirs), ours = forward_of(r, &r->ours);
    struct attention_bwd their_bwd = backward_of(r, &r->theirs), our_bwd = backward_of(r, &r->ours);
    bool done;
    TRY(l->forward(l->context, &r->shape, &theirs, queue, &done));
    if (!done) FAIL(UNSUPPORTED, "it cannot run a forward pass of bfloat16 attention");
    TRY(l->backward(l->context, &r->shape, &their_bwd, queue, &done));
    r->has_backward = done;
    TRY(GPU_NAME(flash_attention_forward)(&r->shape, &ours, queue));
    if (done) TRY(GPU_NAME(flash_attention_backward)(&r->shape, &our_bwd, queue));
    return STATUS_OK;
}

static enum status check_difference(const char *name, const float *theirs, const float *ours,
                                    size_t count)
{
    float largest = 0, difference = 0;
    for (size_t i = 0; i < count; i++) {
        float d = fabsf(theirs[i] - ours[i]);
        if (fabsf(ours[i]) > largest) largest = fabsf(ours[i]);
        if (!(d <= difference)) difference = d; /* keeps a NaN */
        if (isnan(d)) break;
    }
    if (!(difference <= TOLERANCE * largest))
        FAIL(UNSUPPORTED,
             "%s of its attention differs from our own kernel's by %.3g, values reach %.3g", name,
             (double)difference, (double)largest);
    return STATUS_OK;
}

static enum status compare_bf16(struct attention_rig *r, const char *name, const bf16 *theirs,
                                const bf16 *ours, size_t count)
{
    bf16 *bits = heap(2 * count * sizeof *bits);
    float *values = heap(2 * count * sizeof *values);
    enum status st = queue_copy(&r->queue.base, bits, theirs, count * sizeof *bits);
    if (!st) st = queue_copy(&r->queue.base, bits + count, ours, count * sizeof *bits);
    for (size_t i = 0; !st && i < 2 * count; i++) values[i] = bf16_to_f32(bits[i]);
    if (!st) st = check_difference(name, values, values + count, count);
    free(bits), free(values);
    return st;
}

static enum status compare(struct attention_rig *r)
{
    const struct attention_results *a = &r->theirs, *b = &r->ours;
    float lse[2][H * T];
    TRY(compare_bf16(r, "the output", a->out, b->out, q_elements(r)));
    TRY(queue_copy(&r->queue.base, lse[0], a->lse, sizeof lse[0]));
    TRY(queue_copy(&r->queue.base, lse[1], b->lse, sizeof lse[1]));
    TRY(check_difference("the log-sum-exp", lse[0], lse[1], H * T));
    if (!r->has_backward) return STATUS_OK; /* our own kernel computes it */
    TRY(compare_bf16(r, "dq", a->dq, b->dq, q_elements(r)));
    TRY(compare_bf16(r, "dk", a->dk, b->dk, kv_elements(r)));
    TRY(compare_bf16(r, "dv", a->dv, b->dv, kv_elements(r)));
    return STATUS_OK;
}

/* Without memory it only adds up sizes. */
static void alloc_buffers(struct attention_rig *r)
{
    r->q = alloc(r, q_elements(r)), r->dout = alloc(r, q_elements(r));
    r->k = alloc(r, kv_elements(r)), r->v = alloc(r, kv_elements(r));
    alloc_results(r, &r->theirs), alloc_results(r, &r->ours);
}

/* NaN in every type: what the library does not write, or expects to be zero, does not go unnoticed
 * because new memory is zero. */
static enum status fill_with_nan(struct arena *a, struct queue *queue)
{
    void *nan = heap(a->size);
    memset(nan, 0xFF, a->size);
    enum status st = a->size ? queue_copy(queue, a->base, nan, a->size) : STATUS_OK;
    free(nan);
    return st;
}

/* In memory that the host reads, too, as the bounds of a batch are. */
static enum status make_documents(struct attention_rig *r)
{
    TRY(arena_init(&r->shared, 2 * T * sizeof *r->start, queue_shared_allocator(&r->queue.base)));
    r->start = arena_alloc(&r->shared, T, sizeof *r->start);
    r->end = arena_alloc(&r->shared, T, sizeof *r->end);
    for (int t = 0; t < T; t++) {
        r->start[t] = t < FIRST_DOCUMENT ? 0 : FIRST_DOCUMENT;
        r->end[t] = t < FIRST_DOCUMENT ? FIRST_DOCUMENT : T;
    }
    return STATUS_OK;
}

static enum status open_memory(const struct attention_library *l, struct attention_rig *r)
{
    struct queue *queue = &r->queue.base;
    const struct allocator *own = queue_device_allocator(queue);
    alloc_buffers(r);
    queue->sizing = true;
    enum status st = run(l, r);
    queue->sizing = false;
    TRY(st);
    TRY(arena_init(&queue->scratch, queue->scratch.peak, own));
    TRY(arena_init(&r->memory, r->memory.used, own));
    TRY(fill_with_nan(&queue->scratch, queue));
    TRY(fill_with_nan(&r->memory, queue));
    alloc_buffers(r);
    return STATUS_OK;
}

enum status GPU_NAME(attention_check)(const struct attention_library *l,
                                      struct attention_masks masks, int head_size,
                                      struct queue *queue)
{
    struct attention_rig r = {.queue = *(const struct gpu_queue *)queue,
                              .shape = shape_of(masks, head_size)};
    enum status st = STATUS_OK;
    r.queue.base.scratch = (struct arena){.allocator = queue_device_allocator(queue)};
    r.queue.base.trace = NULL;
    if (masks.documents) TRY_OUT(make_documents(&r));
    TRY_OUT(open_memory(l, &r));
    TRY_OUT(fill(&r, r.q, q_elements(&r), 0));
    TRY_OUT(fill(&r, r.k, kv_elements(&r), 1));
    TRY_OUT(fill(&r, r.v, kv_elements(&r), 2));
    TRY_OUT(fill(&r, r.dout, q_elements(&r), 3));
    TRY_OUT(run(l, &r));
    TRY_OUT(compare(&r));
out:
    (void)queue_wait(&r.queue.base);
    arena_release(&r.shared), arena_release(&r.memory), arena_release(&r.queue.base.scratch);
    return st;
}
