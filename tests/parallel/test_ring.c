// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "test.h"

#include "backends/cpu/cpu.h"
#include "base/rng.h"
#include "ops/context.h"
#include "parallel/ring.h"

enum { B = 2, H = 4, G = 2, K = 12, Q = H * K, P = G * K, C = Q + 2 * P };

/* Whole rows, and the results of attention. */
struct whole {
    const struct ops *ops;
    int T, document; /* tokens of a row; 1: there are documents */
    bool causal;
    int window; /* 0: none */
    enum dtype dtype;
    void *qkv, *dout, *out, *dqkv;
    float *lse;
    int32_t *start, *end;
};

static void *at(const void *x, size_t elements, enum dtype dtype)
{
    return (char *)(uintptr_t)x + elements * dtype_bytes(dtype);
}

static float get(const void *x, size_t i, enum dtype dtype)
{
    return dtype == F32 ? ((const float *)x)[i] : bf16_to_f32(((const bf16 *)x)[i]);
}

static void *noise(uint64_t seed, size_t n, enum dtype dtype)
{
    void *x = heap(n * dtype_bytes(dtype));
    for (size_t i = 0; i < n; i++) {
        float value = (float)rng_normal(seed, RNG_TEST, 3, i);
        if (dtype == F32)
            ((float *)x)[i] = value;
        else
            ((bf16 *)x)[i] = bf16_from_f32(value);
    }
    return x;
}

static struct attention attention_of(const struct whole *w, int T)
{
    return (struct attention){.B = B,
                              .T = T,
                              .S = T,
                              .H = H,
                              .G = G,
                              .K = K,
                              .q_stride = C,
                              .kv_stride = C,
                              .scale = 0.3f,
                              .causal = w->causal,
                              .window = w->window,
                              .dtype = w->dtype};
}

static struct attention_fwd forward_of(const struct whole *w)
{
    const int32_t *start = w->document ? w->start : NULL, *end = w->document ? w->end : NULL;
    return (struct attention_fwd){
        w->qkv, at(w->qkv, Q, w->dtype), at(w->qkv, Q + P, w->dtype), start, end, w->out, w->lse};
}

static struct attention_bwd backward_of(const struct whole *w)
{
    struct attention_fwd f = forward_of(w);
    return (struct attention_bwd){.q_BTHK = f.q_BTHK,
                                  .k_BSGK = f.k_BSGK,
                                  .v_BSGK = f.v_BSGK,
                                  .out_BTHK = w->out,
                                  .dout_BTHK = w->dout,
                                  .start_BT = f.start_BT,
                                  .end_BT = f.end_BT,
                                  .lse_BHT = w->lse,
                                  .dq_BTHK = w->dqkv,
                                  .dk_BSGK = at(w->dqkv, Q, w->dtype),
                                  .dv_BSGK = at(w->dqkv, Q + P, w->dtype)};
}

/* Documents of growing lengths: some end within a rank's chunk, some span several. */
static void find_documents(struct whole *w)
{
    for (int b = 0; b < B; b++)
        for (int first = 0, size = 1 + b; first < w->T; first += size, size += 3)
            for (int t = first; t < first + size && t < w->T; t++) {
                w->start[b * w->T + t] = first;
                w->end[b * w->T + t] = first + size < w->T ? first + size : w->T;
            }
}

static struct whole whole_make(int T, enum dtype dtype)
{
    size_t n = (size_t)(B * T);
    struct whole w = {.T = T, .dtype = dtype};
    w.qkv = noise(1, n * C, dtype), w.dout = noise(2, n * Q, dtype);
    w.out = heap(n * Q * 4), w.dqkv = heap(n * C * 4), w.lse = heap(n * H * 4);
    w.start = heap(n * 4), w.end = heap(n * 4);
    find_documents(&w);
    return w;
}

static void whole_release(struct whole *w)
{
    free(w->qkv), free(w->dout), free(w->out), free(w->dqkv), free(w->lse);
    free(w->start), free(w->end);
}

/* Copies tokens of `bytes` each from whole rows to this rank's part of them, or back. */
static void copy_part(const struct context *c, int T, void *here, void *whole, size_t bytes,
                      bool back)
{
    struct token_run runs[MAX_TOKEN_RUNS];
    int n = context_runs(c, T, runs);
    for (int b = 0; b < B; b++)
        for (int i = 0; i < n; i++) {
            char *x = (char *)here + (size_t)(b * T + runs[i].at) * bytes;
            char *y = (char *)whole + (size_t)(b * T * c->parts + runs[i].first) * bytes;
            memcpy(back ? y : x, back ? x : y, (size_t)runs[i].count * bytes);
        }
}

/* This rank's part of the inputs. */
static struct whole part_of(const struct whole *w, const struct context *c)
{
    struct whole here = whole_make(w->T / c->parts, w->dtype);
    size_t each = dtype_bytes(w->dtype);
    here.ops = w->ops, here.causal = w->causal, here.document = w->document;
    here.window = w->window;
    copy_part(c, here.T, here.qkv, w->qkv, C * each, false);
    copy_part(c, here.T, here.dout, w->dout, Q * each, false);
    copy_part(c, here.T, here.start, w->start, 4, false);
    copy_part(c, here.T, here.end, w->end, 4, false);
    return here;
}

/* Relative error |x - y| / |y| over the tokens that are here. */
static double relative_error(const struct whole *here, const struct context *c, const void *x,
                             const void *whole, size_t width)
{
    size_t n = (size_t)(B * here->T) * width;
    void *want = heap(n * 4);
    double error = 0, size = 0;
    copy_part(c, here->T, want, (void *)(uintptr_t)whole, width * dtype_bytes(here->dtype), false);
    for (size_t i = 0; i < n; i++) {
        double a = (double)get(x, i, here->dtype), b = (double)get(want, i, here->dtype);
        error += (a - b) * (a - b), size += b * b;
    }
    free(want);
    return sqrt(error / size);
}

static enum status forward_backward(const struct comm *group, const struct whole *w,
                                    struct queue *queue)
{
    struct attention a = attention_of(w, w->T);
    struct attention_fwd f = forward_of(w);
    struct attention_bwd b = backward_of(w);
    TRY(ring_forward(group, w->ops, &a, &f, queue));
    TRY(ring_backward(group, w->ops, &a, &b, queue));
    return STATUS_OK;
}

static enum status sizing_pass(const struct comm *group, const struct whole *w, struct queue *queue)
{
    queue->sizing = true;
    enum status st = forward_backward(group, w, queue);
    queue->sizing = false;
    return st;
}

/* The bytes and calls that ring.h documents. */
static enum status check_counts(const struct comm_counts *counts, const struct whole *w, int size)
{
    uint64_t hops = (uint64_t)size - 1, keys = B * (uint64_t)w->T * 2 * P;
    uint64_t bytes = dtype_bytes(w->dtype);
    RANK_CHECK(counts->bytes[TRANSFER_shift] == hops * keys * (bytes + bytes + 4));
    RANK_CHECK(counts->calls[TRANSFER_shift] == 3 * hops);
    for (int k = 0; k < TRANSFER_COUNT; k++)
        if (k != TRANSFER_shift) RANK_CHECK(counts->calls[k] == 0);
    return STATUS_OK;
}

static enum status attend(const struct comm *group, void *context)
{
    const struct whole *w = context;
    struct context c = {group->size, group->rank, w->causal};
    struct whole here = part_of(w, &c);
    struct comm_counts counts = {0};
    struct comm planned = {.rank = group->rank, .size = group->size, .counts = &counts};
    struct queue *queue;
    double tolerance = w->dtype == F32 ? 1e-5 : 1e-2;
    TRY(cpu_queue_open(&queue, 1, 0));
    TRY(sizing_pass(&planned, &here, queue));
    TRY(check_counts(&counts, &here, group->size));
    size_t scratch = queue->scratch.peak;
    arena_release(&queue->scratch);
    TRY(sizing_pass(group, &here, queue));
    RANK_CHECK(queue->scratch.peak == scratch && group->counts->calls[TRANSFER_shift] == 0);
    TRY(arena_init(&queue->scratch, scratch, NULL));
    TRY(forward_backward(group, &here, queue));
    TRY(check_counts(group->counts, &here, group->size));
    RANK_CHECK(queue->scratch.used == 0);
    RANK_CHECK(relative_error(&here, &c, here.out, w->out, Q) < tolerance);
    RANK_CHECK(relative_error(&here, &c, here.dqkv, w->dqkv, C) < tolerance);
    cpu_queue_close(queue);
    whole_release(&here);
    return STATUS_OK;
}

/* Compares ring attention with the reference on whole rows. */
static void compare_whole(struct whole *w, int ranks)
{
    struct queue *queue;
    struct attention a = attention_of(w, w->T);
    struct attention_fwd f = forward_of(w);
    struct attention_bwd b = backward_of(w);
    CHECK_STATUS(OK, cpu_queue_open(&queue, 1, 0));
    CHECK_STATUS(OK, attention_forward(&ops_cpu_reference, &a, &f, queue));
    CHECK_STATUS(OK, attention_backward(&ops_cpu_reference, &a, &b, queue));
    CHECK_STATUS(OK, ranks_run(ranks, attend, w));
    cpu_queue_close(queue);
}

static void compare(const struct ops *ops, int ranks, int T, bool causal, int document,
                    enum dtype dtype)
{
    struct whole w = whole_make(T * ranks, dtype);
    w.ops = ops, w.causal = causal, w.document = document;
    compare_whole(&w, ranks);
    whole_release(&w);
}

static void compare_all(const struct ops *ops, const int *sizes)
{
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int d = 0; d < DTYPE_COUNT; d++)
            for (int causal = 0; causal < 2; causal++)
                for (int document = 0; document < 2; document++)
                    for (const int *T = sizes; *T; T++)
                        compare(ops, ranks, *T + (causal ? *T % 2 : 0), causal, document,
                                (enum dtype)d);
}

TEST(ring_attention_matches_attention_to_whole_rows)
{
    compare_all(&ops_cpu_reference, (const int[]){1, 5, TEST_SLOWED ? 0 : 14, 0});
}

TEST(fast_ring_attention_matches_attention_to_whole_rows)
{
    const struct ops *fast;
    CHECK_STATUS(OK, cpu_ops_find("auto", &fast));
    compare_all(fast, (const int[]){3, 22, TEST_SLOWED ? 0 : 46, 0});
}

static enum status twice(const struct comm *group, void *context)
{
    const struct whole *w = context;
    struct context c = {group->size, group->rank, w->causal};
    struct whole a = part_of(w, &c), b = part_of(w, &c);
    size_t n = (size_t)(B * a.T), each = dtype_bytes(w->dtype);
    struct queue *queue;
    TRY(cpu_queue_open(&queue, 1, 0));
    TRY(sizing_pass(group, &a, queue));
    size_t scratch = queue->scratch.peak;
    arena_release(&queue->scratch);
    TRY(arena_init(&queue->scratch, scratch, NULL));
    TRY(forward_backward(group, &a, queue));
    TRY(forward_backward(group, &b, queue));
    RANK_CHECK(!memcmp(a.out, b.out, n * Q * each) && !memcmp(a.dqkv, b.dqkv, n * C * each));
    cpu_queue_close(queue);
    whole_release(&a), whole_release(&b);
    return STATUS_OK;
}

TEST(ring_attention_is_deterministic)
{
    struct whole w = whole_make(4 * 18, BF16);
    w.causal = true, w.document = 1;
    CHECK_STATUS(OK, cpu_ops_find("auto", &w.ops));
    CHECK_STATUS(OK, ranks_run(4, twice, &w));
    whole_release(&w);
}

/* --- what ring attention says about its parts --- */

/* Whether a part's rectangle has the pairs that its bounds have. */
static bool is_rectangle_of(const struct attention *a, const int32_t *start_BT,
                            const int32_t *end_BT)
{
    const struct attention_rectangle *r = &a->rectangle;
    for (int n = 0; n < B * a->T; n++) {
        int t = n % a->T, end = t < r->first_query ? 0 : r->num_keys;
        if (a->causal && end > t + 1) end = t + 1;
        if (start_BT[n] < end_BT[n] ? start_BT[n] || end_BT[n] != end : end) return false;
    }
    return true;
}

#define CHECKED(name, is_good)                                                                     \
    static enum status name##_forward(const struct attention *a, const struct attention_fwd *io,   \
                                      struct queue *queue)                                         \
    {                                                                                              \
        if (!queue->sizing) RANK_CHECK(is_good(a, io->start_BT, io->end_BT));                      \
        return ops_cpu_reference.attention_forward(a, io, queue);                                  \
    }                                                                                              \
    static enum status name##_backward(const struct attention *a, const struct attention_bwd *io,  \
                                       struct queue *queue)                                        \
    {                                                                                              \
        if (!queue->sizing) RANK_CHECK(is_good(a, io->start_BT, io->end_BT));                      \
        return ops_cpu_reference.attention_backward(a, io, queue);                                 \
    }
CHECKED(rectangle, is_rectangle_of)
#define HAS_NONE(a, start_BT, end_BT) (!(a)->rectangle.num_keys && !(a)->causal)
CHECKED(bounded, HAS_NONE)

static struct ops checked_ops(bool has_rectangles)
{
    struct ops ops = ops_cpu_reference;
    ops.attention_forward = has_rectangles ? rectangle_forward : bounded_forward;
    ops.attention_backward = has_rectangles ? rectangle_backward : bounded_backward;
    return ops;
}

TEST(ring_attention_describes_rectangles_that_the_bounds_have)
{
    const struct ops ops = checked_ops(true);
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int causal = 0; causal < 2; causal++) compare(&ops, ranks, 6, causal, 0, F32);
}

TEST(ring_attention_describes_no_rectangles_with_documents_or_a_window)
{
    const struct ops ops = checked_ops(false);
    compare(&ops, 3, 6, true, 1, F32), compare(&ops, 3, 6, false, 1, F32);
    struct whole w = whole_make(3 * 6, F32);
    w.ops = &ops, w.causal = true, w.window = 17;
    compare_whole(&w, 3);
    const struct ops all = checked_ops(true); /* a window of the whole row hides nothing */
    w.ops = &all, w.window = 18;
    compare_whole(&w, 3);
    whole_release(&w);
}
