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
enum { T = 512, PART_T = 256, H = 2, TOKENS = 512 /* of all rows */ };
enum { FIRST_DOCUMENT = 100, WINDOW = 150 /* tokens */ };
/* Of the largest magnitude.  bf16 has steps of 0.4 %, and both sides round the probs. */
static const float TOLERANCE = 0.04f;

/* Of ring attention: keys of the queries' own rank, of one before, and of one after. */
static const struct attention_rectangle rectangles[] = {
    {0, PART_T}, {0, PART_T / 2}, {PART_T / 2, PART_T}};
enum { MAX_PARTS = sizeof rectangles / sizeof *rectangles };

static struct attention shape_of(struct attention_case what, int K)
{
    int tokens = what.parts ? PART_T : T;
    return (struct attention){.B = TOKENS / tokens,
                              .T = tokens,
                              .S = tokens,
                              .H = H,
                              .G = 1,
                              .K = K,
                              .q_stride = H * (size_t)K,
                              .kv_stride = (size_t)K,
                              .scale = 1 / sqrtf((float)K),
                              .causal = true,
                              .window = what.window ? WINDOW : 0,
                              .dtype = BF16};
}

/* The results of the library, and of our own kernels: bf16, in parts f32.  Each part has dk and dv
 * of its own. */
struct attention_results {
    void *out, *dq, *dk[MAX_PARTS], *dv[MAX_PARTS];
    float *lse;
};
struct attention_rig {
    struct gpu_queue queue; /* the caller's stream, with scratch of its own */
    struct arena memory, shared;
    struct attention shape;
    int num_parts;
    int32_t *start[MAX_PARTS], *end[MAX_PARTS]; /* NULL: no bounds */
    bf16 *q, *k, *v, *dout;
    struct attention_results theirs, ours;
    bool has_backward; /* the library computes it, too */
};

static size_t kv_elements(const struct attention_rig *r) { return TOKENS * (size_t)r->shape.K; }

static size_t q_elements(const struct attention_rig *r) { return H * kv_elements(r); }

static bf16 *alloc(struct attention_rig *r, size_t elements)
{
    return arena_alloc(&r->memory, elements, sizeof(bf16));
}

static enum dtype result_dtype(const struct attention_rig *r)
{
    return r->num_parts > 1 ? F32 : BF16;
}

static void alloc_results(struct attention_rig *r, struct attention_results *x)
{
    size_t bytes = dtype_bytes(result_dtype(r));
    x->out = arena_alloc(&r->memory, q_elements(r), bytes);
    x->dq = arena_alloc(&r->memory, q_elements(r), bytes);
    for (int i = 0; i < r->num_parts; i++) {
        x->dk[i] = arena_alloc(&r->memory, kv_elements(r), bytes);
        x->dv[i] = arena_alloc(&r->memory, kv_elements(r), bytes);
    }
    x->lse = arena_alloc(&r->memory, H * TOKENS, sizeof *x->lse);
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

static struct attention shape_of_part(const struct attention_rig *r, int i)
{
    struct attention a = r->shape;
    if (r->num_parts == 1) return a;
    a.keys = i ? MORE_KEYS : FIRST_KEYS, a.causal = !i, a.rectangle = rectangles[i];
    return a;
}

static struct attention_fwd forward_of(const struct attention_rig *r,
                                       const struct attention_results *x, int i)
{
    return (struct attention_fwd){.q_BTHK = r->q,
                                  .k_BSGK = r->k,
                                  .v_BSGK = r->v,
                                  .start_BT = r->start[i],
                                  .end_BT = r->end[i],
                                  .out_BTHK = x->out,
                                  .lse_BHT = x->lse};
}

/* Backward of a part takes out in bf16.  It need not be that of forward: q will do. */
static struct attention_bwd backward_of(const struct attention_rig *r,
                                        const struct attention_results *x, int i)
{
    return (struct attention_bwd){.q_BTHK = r->q,
                                  .k_BSGK = r->k,
                                  .v_BSGK = r->v,
                                  .out_BTHK = r->num_parts > 1 ? r->q : x->out,
                                  .dout_BTHK = r->dout,
                                  .lse_BHT = x->lse,
                                  .start_BT = r->start[i],
                                  .end_BT = r->end[i],
                                  .dq_BTHK = x->dq,
                                  .dk_BSGK = x->dk[i],
                                  .dv_BSGK = x->dv[i]};
}

static enum status run_forward(const struct attention_library *l, struct attention_rig *r, int i)
{
    struct attention a = shape_of_part(r, i);
    struct attention_fwd theirs = forward_of(r, &r->theirs, i), ours = forward_of(r, &r->ours, i);
    bool done;
    TRY(l->forward(l->context, &a, &theirs, &r->queue.base, &done));
    if (!done) FAIL(UNSUPPORTED, "it cannot run a forward pass of bfloat16 attention");
    TRY(GPU_NAME(flash_attention_forward)(&a, &ours, &r->queue.base));
    return STATUS_OK;
}

static enum status run_backward(const struct attention_library *l, struct attention_rig *r, int i)
{
    struct attention a = shape_of_part(r, i);
    struct attention_bwd theirs = backward_of(r, &r->theirs, i), ours = backward_of(r, &r->ours, i);
    bool done;
    TRY(l->backward(l->context, &a, &theirs, &r->queue.base, &done));
    if (done) TRY(GPU_NAME(flash_attention_backward)(&a, &ours, &r->queue.base));
    r->has_backward = done;
    return STATUS_OK;
}

/* These run both; during a sizing pass the buffers are NULL. */
static enum status run_forwards(const struct attention_library *l, struct attention_rig *r)
{
    for (int i = 0; i < r->num_parts; i++) TRY(run_forward(l, r, i));
    return STATUS_OK;
}

static enum status run_backwards(const struct attention_library *l, struct attention_rig *r)
{
    r->has_backward = true;
    for (int i = 0; i < r->num_parts && r->has_backward; i++) TRY(run_backward(l, r, i));
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

/* Copies values to the host, as f32. */
static enum status read_values(struct attention_rig *r, const void *from, enum dtype dtype,
                               float *to, size_t count)
{
    if (dtype == F32) return queue_copy(&r->queue.base, to, from, count * sizeof *to);
    bf16 *bits = heap(count * sizeof *bits);
    enum status st = queue_copy(&r->queue.base, bits, from, count * sizeof *bits);
    for (size_t i = 0; !st && i < count; i++) to[i] = bf16_to_f32(bits[i]);
    free(bits);
    return st;
}

static enum status compare_values(struct attention_rig *r, const char *name, const void *theirs,
                                  const void *ours, size_t count)
{
    float *values = heap(2 * count * sizeof *values);
    enum status st = read_values(r, theirs, result_dtype(r), values, count);
    if (!st) st = read_values(r, ours, result_dtype(r), values + count, count);
    if (!st) st = check_difference(name, values, values + count, count);
    free(values);
    return st;
}

static enum status compare_outputs(struct attention_rig *r)
{
    const struct attention_results *a = &r->theirs, *b = &r->ours;
    float lse[2][H * TOKENS];
    TRY(compare_values(r, "the output", a->out, b->out, q_elements(r)));
    TRY(queue_copy(&r->queue.base, lse[0], a->lse, sizeof lse[0]));
    TRY(queue_copy(&r->queue.base, lse[1], b->lse, sizeof lse[1]));
    return check_difference("the log-sum-exp", lse[0], lse[1], H * TOKENS);
}

static enum status compare_gradients(struct attention_rig *r)
{
    const struct attention_results *a = &r->theirs, *b = &r->ours;
    if (!r->has_backward) return STATUS_OK; /* our own kernel computes it */
    TRY(compare_values(r, "dq", a->dq, b->dq, q_elements(r)));
    for (int i = 0; i < r->num_parts; i++) {
        TRY(compare_values(r, "dk", a->dk[i], b->dk[i], kv_elements(r)));
        TRY(compare_values(r, "dv", a->dv[i], b->dv[i], kv_elements(r)));
    }
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

/* Two documents, or the rectangle of a part. */
static void set_bounds(const struct attention_rig *r, int i)
{
    for (int n = 0; n < TOKENS; n++) {
        int t = n % r->shape.T, begin = t < FIRST_DOCUMENT ? 0 : FIRST_DOCUMENT;
        int end = t < FIRST_DOCUMENT ? FIRST_DOCUMENT : T;
        if (r->num_parts > 1) begin = 0, end = rectangles[i].num_keys;
        if (r->num_parts > 1 && t < rectangles[i].first_query) end = 0;
        r->start[i][n] = begin, r->end[i][n] = end;
    }
}

/* Bounds are in memory that the host reads, too, as those of a batch are. */
static enum status make_bounds(struct attention_rig *r)
{
    size_t lists = 2 * (size_t)r->num_parts, bytes = TOKENS * sizeof(int32_t) + ARENA_ALIGN;
    TRY(arena_init(&r->shared, lists * bytes, queue_shared_allocator(&r->queue.base)));
    for (int i = 0; i < r->num_parts; i++) {
        r->start[i] = arena_alloc(&r->shared, TOKENS, sizeof **r->start);
        r->end[i] = arena_alloc(&r->shared, TOKENS, sizeof **r->end);
        set_bounds(r, i);
    }
    return STATUS_OK;
}

static enum status open_memory(const struct attention_library *l, struct attention_rig *r)
{
    struct queue *queue = &r->queue.base;
    const struct allocator *own = queue_device_allocator(queue);
    alloc_buffers(r);
    queue->sizing = true;
    enum status st = run_forwards(l, r);
    if (!st) st = run_backwards(l, r);
    queue->sizing = false;
    TRY(st);
    TRY(arena_init(&queue->scratch, queue->scratch.peak, own));
    TRY(arena_init(&r->memory, r->memory.used, own));
    TRY(fill_with_nan(&queue->scratch, queue));
    TRY(fill_with_nan(&r->memory, queue));
    alloc_buffers(r);
    return STATUS_OK;
}

enum status GPU_NAME(attention_check)(const struct attention_library *l, struct attention_case what,
                                      int head_size, struct queue *queue)
{
    struct attention_rig r = {.queue = *(const struct gpu_queue *)queue,
                              .num_parts = what.parts ? MAX_PARTS : 1,
                              .shape = shape_of(what, head_size)};
    enum status st = STATUS_OK;
    r.queue.base.scratch = (struct arena){.allocator = queue_device_allocator(queue)};
    r.queue.base.trace = NULL;
    if (what.documents || what.parts) TRY_OUT(make_bounds(&r));
    TRY_OUT(open_memory(l, &r));
    TRY_OUT(fill(&r, r.q, q_elements(&r), 0));
    TRY_OUT(fill(&r, r.k, kv_elements(&r), 1));
    TRY_OUT(fill(&r, r.v, kv_elements(&r), 2));
    TRY_OUT(fill(&r, r.dout, q_elements(&r), 3));
    TRY_OUT(run_forwards(l, &r));
    TRY_OUT(compare_outputs(&r));
    TRY_OUT(run_backwards(l, &r));
    TRY_OUT(compare_gradients(&r));
out:
    /* a call that fails on a device that works */
    if (!queue_wait(&r.queue.base) && st == STATUS_DEVICE) st = STATUS_UNSUPPORTED;
    arena_release(&r.shared), arena_release(&r.memory), arena_release(&r.queue.base.scratch);
    return st;
}
