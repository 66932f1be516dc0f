/* attention_part.cu -- what a library computes of a part of the keys, merged with earlier parts: a
 * thread owns eight elements. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/attention_part.h"

#include "backends/gpu/kernels/kernel.h"

enum { THREADS = 256, WIDTH = 8 };

/* --- forward --- */

struct merge_params {
    int T, H, K, first_query;
    int begin;        /* the first query of a row that is written */
    int64_t rows;     /* queries of all heads that are written */
    bool accumulates; /* out and lse have those of earlier keys */
    const bf16 *part_out;
    const float *part_lse;
    float *out_BTHK, *lse_BHT;
};

/* log(e^a + e^b), as lse_merge */
static __device__ __forceinline__ float merge_lse(float a, float b)
{
    float high = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY ? high : high + log1pf(expf(low - high));
}

/* The share of keys with this lse in the sum of all. */
static __device__ __forceinline__ float weight_of(float lse, float all)
{
    return lse == -INFINITY ? 0 : expf(lse - all);
}

/* K / WIDTH threads own a query of a head. */
static __global__ void __launch_bounds__(THREADS) merge_part_kernel(const struct merge_params p)
{
    int vectors = p.K / WIDTH, block_rows = THREADS / vectors;
    int own = (int)threadIdx.x / vectors, k = (int)threadIdx.x % vectors * WIDTH;
    int64_t row = (int64_t)blockIdx.x * block_rows + own, queries = p.T - p.begin;
    bool is_active = own < block_rows && row < p.rows;
    int64_t h = row % p.H, t = p.begin + row / p.H % queries, b = row / p.H / queries;
    int64_t R = p.T - p.first_query, i = t - p.first_query;
    float *lse = p.lse_BHT + (b * p.H + h) * p.T + t;
    float before = -INFINITY, part = -INFINITY;
    if (is_active && p.accumulates) before = *lse;
    if (is_active && i >= 0) part = p.part_lse[(b * p.H + h) * R + i];
    __syncthreads(); /* all threads of a query have read its lse */
    if (!is_active) return;
    float all = merge_lse(before, part), x[WIDTH] = {0}, old[WIDTH] = {0};
    float keep = weight_of(before, all), weight = weight_of(part, all);
    float *out = p.out_BTHK + ((b * p.T + t) * p.H + h) * p.K + k;
    if (i >= 0) load<WIDTH>(p.part_out + ((b * R + i) * p.H + h) * p.K + k, x);
    if (p.accumulates) load<WIDTH>(out, old);
    for (int j = 0; j < WIDTH; j++) x[j] = keep * old[j] + weight * x[j];
    store<WIDTH>(x, out);
    if (k == 0) *lse = all;
}

/* --- backward --- */

/* Tokens first .. first + count - 1 of each row have a gradient of the part, the others have 0. */
struct add_params {
    int row_tokens, first, count, begin, end; /* tokens begin .. end - 1 are written */
    int n;                                    /* elements per token */
    size_t stride;                            /* of `to`, from token to token */
    int64_t vectors;                          /* of all tokens that are written */
    bool accumulates;
    const bf16 *from;
    float *to;
};

static __global__ void __launch_bounds__(THREADS) add_part_kernel(const struct add_params p)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= p.vectors) return;
    int64_t per_token = p.n / WIDTH, tokens = p.end - p.begin, token = at / per_token;
    int64_t k = at % per_token * WIDTH, b = token / tokens, t = p.begin + token % tokens;
    int64_t i = t - p.first;
    float x[WIDTH] = {0}, old[WIDTH] = {0};
    float *to = p.to + (b * p.row_tokens + t) * (int64_t)p.stride + k;
    if (i >= 0 && i < p.count) load<WIDTH>(p.from + (b * p.count + i) * p.n + k, x);
    if (p.accumulates) load<WIDTH>(to, old);
    for (int j = 0; j < WIDTH; j++) x[j] += old[j];
    store<WIDTH>(x, to);
}

/* The last `count` of each row's T values. */
static __global__ void __launch_bounds__(THREADS)
    copy_last_kernel(const float *from, float *to, int T, int count, int64_t n)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at < n) to[at] = from[at / count * T + T - count + at % count];
}

/* --- on the host --- */

/* Queries and keys of the rectangle, of all rows. */
struct part_sizes {
    size_t queries, keys, q_width, kv_width;
};

static struct part_sizes sizes_of(const struct attention *a)
{
    const struct attention_rectangle *r = &a->rectangle;
    return {(size_t)a->B * (size_t)(a->T - r->first_query), (size_t)a->B * (size_t)r->num_keys,
            (size_t)a->H * (size_t)a->K, (size_t)a->G * (size_t)a->K};
}

static bool has_rectangle(const struct attention *a)
{
    return a->keys != ALL_KEYS && a->rectangle.num_keys && a->dtype == BF16 && a->K % WIDTH == 0 &&
           a->K <= THREADS * WIDTH;
}

/* What the library computes. */
static struct attention without_parts(const struct attention *a)
{
    struct attention x = *a;
    x.keys = ALL_KEYS;
    return x;
}

static enum status grid_size(size_t blocks, unsigned *out)
{
    if (blocks > INT32_MAX)
        FAIL(UNSUPPORTED, "attention: %zu blocks exceed the maximum grid size", blocks);
    *out = (unsigned)blocks;
    return STATUS_OK;
}

static enum status merge(const struct attention *a, const struct attention_fwd *part,
                         const struct attention_fwd *io, struct queue *queue)
{
    struct merge_params p = {};
    p.T = a->T, p.H = a->H, p.K = a->K, p.first_query = a->rectangle.first_query;
    p.accumulates = a->keys == MORE_KEYS;
    p.begin = p.accumulates ? p.first_query : 0;
    p.rows = (int64_t)a->B * (a->T - p.begin) * a->H;
    p.part_out = (const bf16 *)part->out_BTHK, p.part_lse = part->lse_BHT;
    p.out_BTHK = (float *)io->out_BTHK, p.lse_BHT = io->lse_BHT;
    unsigned blocks;
    TRY(grid_size(ceil_div((size_t)p.rows, (size_t)(THREADS / (a->K / WIDTH))), &blocks));
    LAUNCH(merge_part_kernel, blocks, THREADS, 0, queue, p);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(attention_part_forward)(const struct attention_library *l,
                                                        const struct attention *a,
                                                        const struct attention_fwd *io,
                                                        struct queue *queue, bool *done)
{
    struct attention whole = without_parts(a);
    struct attention_fwd part = *io;
    *done = false;
    if (!has_rectangle(a) || !is_aligned(io->out_BTHK)) return STATUS_OK;
    /* Without a plan there is no scratch for the results. */
    if (!l->has_plan(l->context, &whole, false, queue)) return STATUS_OK;
    part.start_BT = part.end_BT = NULL;
    struct part_sizes n = sizes_of(a);
    size_t mark = arena_mark(&queue->scratch);
    part.out_BTHK = arena_alloc(&queue->scratch, n.queries * n.q_width, sizeof(bf16));
    part.lse_BHT =
        (float *)arena_alloc(&queue->scratch, n.queries * (size_t)a->H, sizeof *part.lse_BHT);
    TRY(l->forward(l->context, &whole, &part, queue, done));
    if (*done && !queue->sizing) TRY(merge(a, &part, io, queue));
    arena_reset(&queue->scratch, mark);
    return STATUS_OK;
}

static enum status add(struct add_params p, int B, struct queue *queue)
{
    p.begin = p.accumulates ? p.first : 0;
    p.end = p.accumulates ? p.first + p.count : p.row_tokens;
    p.vectors = (int64_t)B * (p.end - p.begin) * (p.n / WIDTH);
    unsigned blocks;
    TRY(grid_size(ceil_div((size_t)p.vectors, THREADS), &blocks));
    LAUNCH(add_part_kernel, blocks, THREADS, 0, queue, p);
    return STATUS_OK;
}

static enum status add_gradients(const struct attention *a, const struct attention_bwd *part,
                                 const struct attention_bwd *io, struct queue *queue)
{
    const struct attention_rectangle *r = &a->rectangle;
    struct add_params q = {}, kv = {};
    q.row_tokens = a->T, q.first = r->first_query, q.count = a->T - r->first_query;
    q.n = a->H * a->K, q.stride = (size_t)q.n, q.accumulates = a->keys == MORE_KEYS;
    q.from = (const bf16 *)part->dq_BTHK, q.to = (float *)io->dq_BTHK;
    kv.row_tokens = a->S, kv.count = r->num_keys, kv.n = a->G * a->K, kv.stride = a->kv_stride;
    kv.from = (const bf16 *)part->dk_BSGK, kv.to = (float *)io->dk_BSGK;
    TRY(add(q, a->B, queue));
    TRY(add(kv, a->B, queue));
    kv.from = (const bf16 *)part->dv_BSGK, kv.to = (float *)io->dv_BSGK;
    TRY(add(kv, a->B, queue));
    return STATUS_OK;
}

/* lse of the rectangle's queries. */
static enum status copy_lse(const struct attention *a, const float *lse_BHT, float *to,
                            struct queue *queue)
{
    int count = a->T - a->rectangle.first_query;
    int64_t n = (int64_t)a->B * a->H * count;
    unsigned blocks;
    TRY(grid_size(ceil_div((size_t)n, THREADS), &blocks));
    LAUNCH(copy_last_kernel, blocks, THREADS, 0, queue, lse_BHT, to, a->T, count, n);
    return STATUS_OK;
}

/* Allocates and computes the part's gradients. */
static enum status run_backward(const struct attention_library *l, const struct attention *whole,
                                struct attention_bwd *part, struct queue *queue, bool *done)
{
    struct part_sizes n = sizes_of(whole);
    struct arena *scratch = &queue->scratch;
    part->dq_BTHK = arena_alloc(scratch, n.queries * n.q_width, sizeof(bf16));
    part->dk_BSGK = arena_alloc(scratch, n.keys * n.kv_width, sizeof(bf16));
    part->dv_BSGK = arena_alloc(scratch, n.keys * n.kv_width, sizeof(bf16));
    if (whole->rectangle.first_query) {
        float *lse = (float *)arena_alloc(scratch, n.queries * (size_t)whole->H, sizeof *lse);
        if (!queue->sizing) TRY(copy_lse(whole, part->lse_BHT, lse, queue));
        part->lse_BHT = lse;
    }
    TRY(l->backward(l->context, whole, part, queue, done));
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(attention_part_backward)(const struct attention_library *l,
                                                         const struct attention *a,
                                                         const struct attention_bwd *io,
                                                         struct queue *queue, bool *done)
{
    struct attention whole = without_parts(a);
    struct attention_bwd part = *io;
    *done = false;
    if (!has_rectangle(a) || !rows_are_aligned(a->kv_stride, F32)) return STATUS_OK;
    if (!is_aligned(io->dq_BTHK) || !is_aligned(io->dk_BSGK) || !is_aligned(io->dv_BSGK))
        return STATUS_OK;
    if (!l->has_plan(l->context, &whole, true, queue)) return STATUS_OK;
    part.start_BT = part.end_BT = NULL;
    size_t mark = arena_mark(&queue->scratch);
    TRY(run_backward(l, &whole, &part, queue, done));
    if (*done && !queue->sizing) TRY(add_gradients(a, &part, io, queue));
    arena_reset(&queue->scratch, mark);
    return STATUS_OK;
}
