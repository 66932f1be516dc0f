/* attention.c (cpu) -- flash attention (Dao et al. 2022, alg. 1; Dao 2023, alg. 2) on f32 blocks.
 *
 * Blocks of 64 queries meet blocks of 64 keys; T x T is never stored.  Inputs are converted to f32
 * block by block, products run in tile.c.
 * Order    Forward: a query block passes over its keys in order.  Backward: one task owns a
 *          key/value head of a row and passes over key blocks, query heads, query blocks in order.
 *          Neither depends on the number of threads.
 * Limits   Backward holds dq of one key/value head's query heads in f32: T * H/G * K per thread.
 *          With fewer key/value heads times rows than threads, backward leaves threads idle. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/tile.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>
#include <omp.h>

enum { BLOCK = 64 }; /* queries, and keys, of a block */

/* Head size padded to whole vectors. */
static size_t padded(const struct attention *a) { return ((size_t)a->K + 15) / 16 * 16; }
static size_t heads_each(const struct attention *a) { return (size_t)a->H / (size_t)a->G; }
static int smaller(int a, int b) { return a < b ? a : b; }
static int larger(int a, int b) { return a > b ? a : b; }

/* Keys [begin, end) seen by a query, or by any query of a block. */
struct range {
    int begin, end;
};

static struct range seen_by(const struct attention *a, const int32_t *start, const int32_t *end,
                            int b, int t)
{
    size_t at = (size_t)b * (size_t)a->T + (size_t)t;
    struct range r = {start ? start[at] : 0, end ? end[at] : a->S};
    if (a->causal) r.end = smaller(r.end, t + a->S - a->T + 1);
    return r;
}

/* The ranges of a block's queries, and the keys that any (`some`) and all (`every`) of them see. */
struct sight {
    struct range each[BLOCK], some, every;
};

static void look(const struct attention *a, const int32_t *start, const int32_t *end, int b,
                 int first, int count, struct sight *s)
{
    s->some = (struct range){a->S, 0};
    s->every = (struct range){0, a->S};
    for (int i = 0; i < count; i++) {
        struct range r = s->each[i] = seen_by(a, start, end, b, first + i);
        s->some = (struct range){smaller(s->some.begin, r.begin), larger(s->some.end, r.end)};
        s->every = (struct range){larger(s->every.begin, r.begin), smaller(s->every.end, r.end)};
    }
    for (int i = count; i < BLOCK; i++) s->each[i] = (struct range){0, 0};
}

/* `count` rows of K elements, `stride` apart, to a zero-padded [BLOCK, padded K] block of f32. */
static void pack(const struct attention *a, const void *x, size_t at, size_t stride, int count,
                 float factor, float *block)
{
    size_t K = (size_t)a->K, P = padded(a);
    for (size_t i = 0; i < (size_t)count; i++) {
        vector_load(x, at + i * stride, a->dtype, K, block + i * P);
        for (size_t k = 0; k < K; k++) block[i * P + k] *= factor;
        for (size_t k = K; k < P; k++) block[i * P + k] = 0;
    }
    memset(block + (size_t)count * P, 0, (size_t)(BLOCK - count) * P * sizeof *block);
}

static void transpose(size_t P, const float *block, float *across)
{
    for (size_t k = 0; k < P; k += 16)
        for (size_t i = 0; i < BLOCK; i++)
            for (size_t j = k; j < k + 16; j++) across[j * BLOCK + i] = block[i * P + j];
}

/* Scores that the mask forbids become -inf, for keys first..first+BLOCK-1. */
static void mask(const struct sight *s, int first, int queries, int keys, float *scores)
{
    bool open = first >= s->every.begin && first + keys <= s->every.end && keys == BLOCK;
    if (open && queries == BLOCK) return;
    for (int i = 0; i < BLOCK; i++)
        for (int j = 0; j < BLOCK; j++)
            if (j >= keys || first + j < s->each[i].begin || first + j >= s->each[i].end)
                scores[i * BLOCK + j] = -INFINITY;
}

/* One thread's buffers of the forward pass, for all query heads of a key/value head. */
struct forward {
    float *keys, *across, *values, *scores; /* [64, P] [P, 64] [64, P] [64, 64] */
    float *queries, *out;                   /* [heads, 64, P] */
    float *top, *sum;                       /* [heads, 64] */
};

static size_t forward_floats(const struct attention *a)
{
    return BLOCK * (3 * padded(a) + BLOCK + heads_each(a) * (2 * padded(a) + 2));
}

static struct forward forward_at(const struct attention *a, float *at)
{
    size_t P = padded(a), E = heads_each(a);
    struct forward f = {.keys = at};
    f.across = f.keys + BLOCK * P;
    f.values = f.across + BLOCK * P;
    f.scores = f.values + BLOCK * P;
    f.queries = f.scores + BLOCK * BLOCK;
    f.out = f.queries + E * BLOCK * P;
    f.top = f.out + E * BLOCK * P;
    f.sum = f.top + E * BLOCK;
    return f;
}

/* Scores of one row to probabilities relative to the row's top so far; what was summed before is
 * brought to the new top. */
static void soften(size_t P, float *scores, float *top, float *sum, float *out)
{
    float new_top = *top, new_sum = 0;
#pragma omp simd reduction(max : new_top)
    for (int j = 0; j < BLOCK; j++) new_top = scores[j] > new_top ? scores[j] : new_top;
    if (new_top == -INFINITY) { /* nothing seen yet */
        memset(scores, 0, BLOCK * sizeof *scores);
        return;
    }
    float keep = vector_exp(*top - new_top);
#pragma omp simd reduction(+ : new_sum)
    for (int j = 0; j < BLOCK; j++) {
        scores[j] = vector_exp(scores[j] - new_top);
        new_sum += scores[j];
    }
    *sum = *sum * keep + new_sum;
    *top = new_top;
    if (keep != 1)
        for (size_t k = 0; k < P; k++) out[k] *= keep;
}

/* All queries of a block meet keys first..first+keys-1. */
static void meet(const struct attention *a, const struct forward *f, const struct sight *s,
                 int first, int queries, int keys)
{
    size_t P = padded(a);
    for (size_t e = 0; e < heads_each(a); e++) {
        float *out = f->out + e * BLOCK * P;
        KERNEL(tile_multiply)
        (BLOCK, BLOCK, (int)P, (struct tile_operand){f->queries + e * BLOCK * P, P, 1}, f->across,
         BLOCK, f->scores, BLOCK, false);
        mask(s, first, queries, keys, f->scores);
        for (size_t i = 0; i < BLOCK; i++)
            soften(P, f->scores + i * BLOCK, f->top + e * BLOCK + i, f->sum + e * BLOCK + i,
                   out + i * P);
        KERNEL(tile_multiply)
        (BLOCK, (int)P, BLOCK, (struct tile_operand){f->scores, BLOCK, 1}, f->values, P, out, P,
         true);
    }
}

/* Divides by the sums and writes out the block's rows and their log-sum-exp. */
static void finish(const struct attention *a, const struct attention_fwd *io,
                   const struct forward *f, int b, int g, int first, int queries)
{
    size_t P = padded(a), K = (size_t)a->K, H = (size_t)a->H, T = (size_t)a->T;
    for (size_t e = 0; e < heads_each(a); e++)
        for (size_t i = 0; i < (size_t)queries; i++) {
            size_t h = (size_t)g * heads_each(a) + e, t = (size_t)first + i, row = e * BLOCK + i;
            float *out = f->out + row * P, inverse = 1 / f->sum[row];
            for (size_t k = 0; k < K; k++) out[k] *= inverse;
            vector_store(io->out_BTHK, (((size_t)b * T + t) * H + h) * K, a->dtype, K, out);
            io->lse_BHT[((size_t)b * H + h) * T + t] = f->top[row] + logf(f->sum[row]);
        }
}

static void attend_block(const struct attention *a, const struct attention_fwd *io,
                         const struct forward *f, int b, int g, int first)
{
    size_t P = padded(a), K = (size_t)a->K, E = heads_each(a), T = (size_t)a->T, S = (size_t)a->S;
    int queries = smaller(BLOCK, a->T - first);
    struct sight s;
    look(a, io->start_BT, io->end_BT, b, first, queries, &s);
    for (size_t e = 0; e < E; e++)
        pack(a, io->q_BTHK, ((size_t)b * T + (size_t)first) * a->q_stride + ((size_t)g * E + e) * K,
             a->q_stride, queries, a->scale, f->queries + e * BLOCK * P);
    memset(f->out, 0, E * BLOCK * P * sizeof *f->out);
    for (size_t i = 0; i < E * BLOCK; i++) f->top[i] = -INFINITY, f->sum[i] = 0;
    for (int key = s.some.begin / BLOCK * BLOCK; key < s.some.end; key += BLOCK) {
        int keys = smaller(BLOCK, a->S - key);
        size_t at = ((size_t)b * S + (size_t)key) * a->kv_stride + (size_t)g * K;
        pack(a, io->k_BSGK, at, a->kv_stride, keys, 1, f->keys);
        pack(a, io->v_BSGK, at, a->kv_stride, keys, 1, f->values);
        transpose(P, f->keys, f->across);
        meet(a, f, &s, key, queries, keys);
    }
    finish(a, io, f, b, g, first, queries);
}

enum status KERNEL(attention_forward)(const struct attention *a, const struct attention_fwd *io,
                                      struct queue *on)
{
    size_t each = forward_floats(a), mark = arena_mark(&on->scratch);
    float *buffers = arena_take(&on->scratch, (size_t)on->num_threads * each, sizeof *buffers);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    int blocks = (a->T + BLOCK - 1) / BLOCK, per_row = blocks * a->G;
    long tasks = (long)a->B * per_row;
#pragma omp parallel for schedule(dynamic) num_threads(on->num_threads)
    for (long task = 0; task < tasks; task++) {
        struct forward f = forward_at(a, buffers + (size_t)omp_get_thread_num() * each);
        int within = (int)(task % per_row); /* the longest blocks first */
        attend_block(a, io, &f, (int)(task / per_row), within % a->G,
                     (blocks - 1 - within / a->G) * BLOCK);
    }
    return STATUS_OK;
}

/* One thread's buffers of the backward pass. */
struct backward {
    float *keys, *keys_across, *values, *values_across; /* of a key block */
    float *dkeys, *dvalues;                             /* [64, P] */
    float *queries, *dout;                              /* of a query block, [64, P] */
    float *p, *ds;                                      /* [64, 64] */
    float *delta;                                       /* [heads, T] */
    float *dqueries;                                    /* [heads, T padded to blocks, P] */
};

static size_t rows_padded(const struct attention *a)
{
    return ((size_t)a->T + BLOCK - 1) / BLOCK * BLOCK;
}

static size_t backward_floats(const struct attention *a)
{
    return BLOCK * (8 * padded(a) + 2 * BLOCK) + heads_each(a) * rows_padded(a) * (padded(a) + 1);
}

static struct backward backward_at(const struct attention *a, float *at)
{
    size_t block = BLOCK * padded(a);
    struct backward w = {.keys = at};
    w.keys_across = w.keys + block;
    w.values = w.keys_across + block;
    w.values_across = w.values + block;
    w.dkeys = w.values_across + block;
    w.dvalues = w.dkeys + block;
    w.queries = w.dvalues + block;
    w.dout = w.queries + block;
    w.p = w.dout + block;
    w.ds = w.p + BLOCK * BLOCK;
    w.delta = w.ds + BLOCK * BLOCK;
    w.dqueries = w.delta + heads_each(a) * rows_padded(a);
    return w;
}

/* Where the rows of head h of row b begin in out and dout, and in lse. */
static size_t out_at(const struct attention *a, int b, size_t h, int t)
{
    return (((size_t)b * (size_t)a->T + (size_t)t) * (size_t)a->H + h) * (size_t)a->K;
}

/* delta = dout . out of each row. */
static void deltas(const struct attention *a, const struct attention_bwd *io,
                   const struct backward *w, int b, int g)
{
    size_t P = padded(a);
    for (size_t e = 0; e < heads_each(a); e++)
        for (int first = 0; first < a->T; first += BLOCK) {
            int count = smaller(BLOCK, a->T - first);
            size_t h = (size_t)g * heads_each(a) + e, stride = (size_t)a->H * (size_t)a->K;
            float *delta = w->delta + e * rows_padded(a) + first;
            pack(a, io->out_BTHK, out_at(a, b, h, first), stride, count, 1, w->queries);
            pack(a, io->dout_BTHK, out_at(a, b, h, first), stride, count, 1, w->dout);
            for (size_t i = 0; i < BLOCK; i++) {
                float sum = 0;
#pragma omp simd reduction(+ : sum)
                for (size_t k = 0; k < P; k++) sum += w->queries[i * P + k] * w->dout[i * P + k];
                delta[i] = sum;
            }
        }
}

/* p = exp(s - lse) and ds = p (dp - delta) scale, over a block; masked scores are -inf. */
static void probabilities(const struct attention *a, const float *lse, const float *delta,
                          int queries, float *p, float *ds)
{
    for (size_t i = 0; i < BLOCK; i++) {
        bool there = i < (size_t)queries;
        float row_lse = there ? lse[i] : 0, row_delta = there ? delta[i] : 0;
        float *score = p + i * BLOCK, *dp = ds + i * BLOCK;
        for (size_t j = 0; j < BLOCK; j++) {
            float value = vector_exp(score[j] - row_lse);
            score[j] = value;
            dp[j] = value * (dp[j] - row_delta) * a->scale;
        }
    }
}

/* One query block of head e meets the key block that is packed in w. */
static void meet_backward(const struct attention *a, const struct attention_bwd *io,
                          const struct backward *w, const struct sight *s, int b, size_t h,
                          size_t e, int first, int key, int keys)
{
    int P = (int)padded(a), queries = smaller(BLOCK, a->T - first);
    size_t p = padded(a), K = (size_t)a->K, T = (size_t)a->T;
    const float *lse = io->lse_BHT + ((size_t)b * (size_t)a->H + h) * T + first;
    float *dq = w->dqueries + (e * rows_padded(a) + (size_t)first) * p;
    struct tile_operand across = {w->p, 1, BLOCK}, dacross = {w->ds, 1, BLOCK};
    pack(a, io->q_BTHK, ((size_t)b * T + (size_t)first) * a->q_stride + h * K, a->q_stride, queries,
         1, w->queries);
    pack(a, io->dout_BTHK, out_at(a, b, h, first), (size_t)a->H * K, queries, 1, w->dout);
    KERNEL(tile_multiply)
    (BLOCK, BLOCK, P, (struct tile_operand){w->queries, p, 1}, w->keys_across, BLOCK, w->p, BLOCK,
     false);
    KERNEL(tile_multiply)
    (BLOCK, BLOCK, P, (struct tile_operand){w->dout, p, 1}, w->values_across, BLOCK, w->ds, BLOCK,
     false);
    for (size_t i = 0; i < BLOCK * BLOCK; i++) w->p[i] *= a->scale;
    mask(s, key, queries, keys, w->p);
    probabilities(a, lse, w->delta + e * rows_padded(a) + first, queries, w->p, w->ds);
    KERNEL(tile_multiply)(BLOCK, P, BLOCK, across, w->dout, p, w->dvalues, p, true);
    KERNEL(tile_multiply)(BLOCK, P, BLOCK, dacross, w->queries, p, w->dkeys, p, true);
    KERNEL(tile_multiply)
    (BLOCK, P, BLOCK, (struct tile_operand){w->ds, BLOCK, 1}, w->keys, p, dq, p, true);
}

static void store_rows(const struct attention *a, const float *block, int count, void *x, size_t at,
                       size_t stride)
{
    for (size_t i = 0; i < (size_t)count; i++)
        vector_store(x, at + i * stride, a->dtype, (size_t)a->K, block + i * padded(a));
}

/* Everything of one key/value head of one row. */
static void head_backward(const struct attention *a, const struct attention_bwd *io,
                          const struct backward *w, int b, int g)
{
    size_t P = padded(a), K = (size_t)a->K, E = heads_each(a), T = (size_t)a->T;
    deltas(a, io, w, b, g);
    memset(w->dqueries, 0, E * rows_padded(a) * P * sizeof *w->dqueries);
    for (int key = 0; key < a->S; key += BLOCK) {
        int keys = smaller(BLOCK, a->S - key);
        size_t at = ((size_t)b * T + (size_t)key) * a->kv_stride + (size_t)g * K;
        pack(a, io->k_BSGK, at, a->kv_stride, keys, 1, w->keys);
        pack(a, io->v_BSGK, at, a->kv_stride, keys, 1, w->values);
        transpose(P, w->keys, w->keys_across);
        transpose(P, w->values, w->values_across);
        memset(w->dkeys, 0, BLOCK * P * sizeof *w->dkeys);
        memset(w->dvalues, 0, BLOCK * P * sizeof *w->dvalues);
        for (int first = 0; first < a->T; first += BLOCK) {
            struct sight s;
            look(a, io->start_BT, io->end_BT, b, first, smaller(BLOCK, a->T - first), &s);
            if (key >= s.some.end || key + keys <= s.some.begin) continue;
            for (size_t e = 0; e < E; e++)
                meet_backward(a, io, w, &s, b, (size_t)g * E + e, e, first, key, keys);
        }
        store_rows(a, w->dkeys, keys, io->dk_BSGK, at, a->kv_stride);
        store_rows(a, w->dvalues, keys, io->dv_BSGK, at, a->kv_stride);
    }
    for (size_t e = 0; e < E; e++)
        store_rows(a, w->dqueries + e * rows_padded(a) * P, a->T, io->dq_BTHK,
                   (size_t)b * T * a->q_stride + ((size_t)g * E + e) * K, a->q_stride);
}

enum status KERNEL(attention_backward)(const struct attention *a, const struct attention_bwd *io,
                                       struct queue *on)
{
    size_t each = backward_floats(a), mark = arena_mark(&on->scratch);
    float *buffers = arena_take(&on->scratch, (size_t)on->num_threads * each, sizeof *buffers);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    long tasks = (long)a->B * a->G;
#pragma omp parallel for schedule(dynamic) num_threads(on->num_threads)
    for (long task = 0; task < tasks; task++) {
        struct backward w = backward_at(a, buffers + (size_t)omp_get_thread_num() * each);
        head_backward(a, io, &w, (int)(task / a->G), (int)(task % a->G));
    }
    return STATUS_OK;
}
