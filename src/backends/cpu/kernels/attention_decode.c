// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_decode.h"

#include "backends/cpu/kernels/attention_mask.h"
#include "backends/cpu/kernels/vector.h"

#include <math.h>
#include <omp.h>

enum {
    QUERIES = 4,                 /* that share a key/value head and are computed together */
    KEYS = LANES / 4,            /* whose scores with these queries fill a register */
    PAIR = 2 * LANES,            /* elements of a head that are loaded at a time */
    PAIRS = LANES == 16 ? 2 : 1, /* of these, of the output, that registers hold */
    PART = 512,                  /* keys of a task, at most */
    PREFETCH_KEYS = 24,
};

/* One call.  A task is a part of the keys of a key/value head; all query heads that use it, and all
 * T queries of these, are its queries n = t * (H/G) + head. */
struct decode_attention {
    const struct attention *a;
    const struct attention_fwd *io;
    size_t parts;       /* of the keys, equally long; their number depends on S alone */
    size_t num_queries; /* of a task, rounded up to QUERIES */
    size_t row;         /* K, rounded up to PAIR: of a query, and of a sum of values */
    float *partials;    /* of each task and query: sum of values, max of scores, sum of probs */
    float *scratch;     /* of each thread: queries, then scores [keys][QUERIES] */
};

static size_t partial_floats(const struct decode_attention *d) { return d->row + 2; }

static size_t scratch_floats(const struct decode_attention *d)
{
    return d->num_queries * d->row + (PART + KEYS) * QUERIES;
}

/* The keys that a group of queries sees of a part: those of each, and of any. */
struct part_keys {
    size_t begin[QUERIES], end[QUERIES], any_begin, any_end;
};

static struct part_keys find_keys(const struct decode_attention *d, size_t b, size_t part,
                                  size_t query)
{
    const struct attention *a = d->a;
    const struct mask_source source = {a, d->io->start_BT, d->io->end_BT};
    size_t heads = (size_t)(a->H / a->G), S = (size_t)a->S;
    size_t first = S * part / d->parts, last = S * (part + 1) / d->parts;
    struct part_keys keys = {.any_begin = last, .any_end = first};
    for (size_t i = 0; i < QUERIES && query + i < heads * (size_t)a->T; i++) {
        struct key_range range = visible_keys(&source, b, (query + i) / heads);
        size_t begin = range.begin > (int32_t)first ? (size_t)range.begin : first;
        size_t end = range.end < (int32_t)last ? (size_t)(range.end > 0 ? range.end : 0) : last;
        if (begin >= end) continue;
        keys.begin[i] = begin, keys.end[i] = end;
        keys.any_begin = size_min(keys.any_begin, begin);
        if (end > keys.any_end) keys.any_end = end;
    }
    return keys;
}

/* Scores of KEYS keys, at these elements, with QUERIES queries: [KEYS][QUERIES]. */
static inline __attribute__((always_inline)) vector score_keys(const struct decode_attention *d,
                                                               enum dtype dtype,
                                                               const size_t at[KEYS],
                                                               const float *queries)
{
    size_t K = (size_t)d->a->K, ahead = PREFETCH_KEYS * d->a->kv_stride, k = 0;
    const void *keys = d->io->k_BSGK;
    vector sums[LANES] = {0};
    for (; k + PAIR <= K; k += PAIR)
        for (size_t i = 0; i < KEYS; i++) {
            struct vectors key = vector_get_two(keys, at[i] + k, dtype);
            vector_prefetch(keys, at[i] + k + ahead, dtype);
            for (size_t q = 0; q < QUERIES; q++) {
                const float *query = queries + q * d->row + k;
                sums[i * QUERIES + q] += key.a * vector_loadu(query);
                sums[i * QUERIES + q] += key.b * vector_loadu(query + LANES);
            }
        }
    for (; k < K; k += LANES)
        for (size_t i = 0; i < KEYS; i++) {
            vector key = vector_get(keys, at[i] + k, dtype, size_min(LANES, K - k));
            for (size_t q = 0; q < QUERIES; q++)
                sums[i * QUERIES + q] += key * vector_loadu(queries + q * d->row + k);
        }
    return d->a->scale * vector_reduce_sums(sums);
}

/* Scores [keys][QUERIES] of all keys that any of the queries sees, -inf where one does not. */
static inline __attribute__((always_inline)) void score_part(const struct decode_attention *d,
                                                             enum dtype dtype, size_t first_key,
                                                             const struct part_keys *keys,
                                                             const float *queries, float *scores)
{
    size_t stride = d->a->kv_stride, count = keys->any_end - keys->any_begin;
    for (size_t s = 0; s < count; s += KEYS) {
        size_t at[KEYS];
        for (size_t i = 0; i < KEYS; i++)
            at[i] = first_key + (keys->any_begin + size_min(s + i, count - 1)) * stride;
        vector_storeu(scores + s * QUERIES, score_keys(d, dtype, at, queries));
    }
    size_t stored = (count + KEYS - 1) / KEYS * KEYS;
    for (size_t q = 0; q < QUERIES; q++) {
        size_t begin = keys->end[q] ? keys->begin[q] - keys->any_begin : stored;
        size_t end = keys->end[q] ? keys->end[q] - keys->any_begin : stored;
        for (size_t s = 0; s < begin; s++) scores[s * QUERIES + q] = -INFINITY;
        for (size_t s = end; s < stored; s++) scores[s * QUERIES + q] = -INFINITY;
    }
}

/* Turns scores of `count` keys into exp(score - max); the max and the sum of each query. */
static void softmax_part(enum dtype dtype, size_t count, float *scores, float max_Q[QUERIES],
                         float sum_Q[QUERIES])
{
    vector max = vector_broadcast(-INFINITY), sum = {0};
    for (size_t s = 0; s < count; s += KEYS)
        max = vector_max(max, vector_loadu(scores + s * QUERIES));
    for (int q = 0; q < QUERIES; q++) {
        max_Q[q] = max[q];
        for (int i = q; i < LANES; i += QUERIES) max_Q[q] = max[i] > max_Q[q] ? max[i] : max_Q[q];
        for (int i = q; i < LANES; i += QUERIES) max[i] = max_Q[q] > -INFINITY ? max_Q[q] : 0;
    }
    for (size_t s = 0; s < count; s += KEYS) {
        vector probs = vector_exps(dtype, vector_loadu(scores + s * QUERIES) - max);
        sum += probs;
        vector_storeu(scores + s * QUERIES, probs);
    }
    for (int q = 0; q < QUERIES; q++) {
        sum_Q[q] = 0;
        for (int i = q; i < LANES; i += QUERIES) sum_Q[q] += sum[i];
    }
}

/* Values of `count` keys from element `at` on, weighted by the probs [count][QUERIES]. */
struct value_sum {
    size_t count, at;
    const float *probs;
    float *sums; /* of each query */
};

/* From column k on, `pairs` pairs of registers of each query. */
static inline __attribute__((always_inline)) void add_values(const struct decode_attention *d,
                                                             enum dtype dtype,
                                                             const struct value_sum *of, size_t k,
                                                             size_t pairs)
{
    const float *probs = of->probs;
    size_t at = of->at + k;
    vector out[QUERIES][2 * PAIRS] = {0};
    size_t stride = d->a->kv_stride;
    for (size_t s = 0; s < of->count; s++, at += stride, probs += QUERIES)
        for (size_t p = 0; p < pairs; p++) {
            struct vectors v = vector_get_two(d->io->v_BSGK, at + p * PAIR, dtype);
            vector_prefetch(d->io->v_BSGK, at + p * PAIR + PREFETCH_KEYS * stride, dtype);
            for (size_t q = 0; q < QUERIES; q++)
                out[q][2 * p] += probs[q] * v.a, out[q][2 * p + 1] += probs[q] * v.b;
        }
    for (size_t q = 0; q < QUERIES; q++)
        for (size_t i = 0; i < 2 * pairs; i++)
            vector_storeu(of->sums + q * partial_floats(d) + k + i * LANES, out[q][i]);
}

/* The columns of a head that fill no pair. */
static void add_last_values(const struct decode_attention *d, const struct value_sum *of, size_t k)
{
    const float *probs = of->probs;
    size_t width = size_min(LANES, (size_t)d->a->K - k);
    vector out[QUERIES] = {0};
    for (size_t s = 0; s < of->count; s++, probs += QUERIES) {
        size_t at = of->at + k + s * d->a->kv_stride;
        vector v = vector_get(d->io->v_BSGK, at, d->a->dtype, width);
        for (size_t q = 0; q < QUERIES; q++) out[q] += probs[q] * v;
    }
    for (size_t q = 0; q < QUERIES; q++)
        vector_storeu(of->sums + q * partial_floats(d) + k, out[q]);
}

static inline __attribute__((always_inline)) void
sum_values(const struct decode_attention *d, enum dtype dtype, const struct value_sum *of)
{
    size_t K = (size_t)d->a->K, k = 0;
    for (; k + PAIRS * PAIR <= K; k += PAIRS * PAIR) add_values(d, dtype, of, k, PAIRS);
    for (; k + PAIR <= K; k += PAIR) add_values(d, dtype, of, k, 1);
    for (; k < K; k += LANES) add_last_values(d, of, k);
}

/* A group of queries, to their partial results. */
static inline __attribute__((always_inline)) void attend_part(const struct decode_attention *d,
                                                              enum dtype dtype, size_t first_key,
                                                              const struct part_keys *keys,
                                                              const float *queries, float *partials)
{
    float *scores =
        d->scratch + (size_t)omp_get_thread_num() * scratch_floats(d) + d->num_queries * d->row;
    size_t count = keys->any_begin < keys->any_end ? keys->any_end - keys->any_begin : 0;
    size_t first = first_key + keys->any_begin * d->a->kv_stride;
    float max[QUERIES], sum[QUERIES];
    if (count) score_part(d, dtype, first_key, keys, queries, scores);
    softmax_part(dtype, count, scores, max, sum);
    sum_values(d, dtype, &(struct value_sum){count, first, scores, partials});
    for (size_t q = 0; q < QUERIES; q++, partials += partial_floats(d))
        partials[d->row] = max[q], partials[d->row + 1] = sum[q];
}

/* Stores a row of sums that is in the order of vector_get_two. */
static void store_row(void *x, size_t at, enum dtype dtype, size_t K, const float *from)
{
    size_t k = 0;
    for (; k + PAIR <= K; k += PAIR)
        vector_set_two(x, at + k, dtype,
                       (struct vectors){vector_loadu(from + k), vector_loadu(from + k + LANES)});
    for (; k < K; k += LANES)
        vector_set(x, at + k, dtype, size_min(LANES, K - k), vector_loadu(from + k));
}

/* Merges the parts of query n of (b, g) into those of the first part, and stores the result. */
static void merge_parts(const struct decode_attention *d, size_t b, size_t g, size_t n)
{
    const struct attention *a = d->a;
    size_t heads = (size_t)(a->H / a->G), T = (size_t)a->T, h = g * heads + n % heads,
           t = n / heads, each = (size_t)a->G * d->num_queries * partial_floats(d);
    size_t filled = ((size_t)a->K + LANES - 1) / LANES * LANES;
    float *first =
        d->partials + ((b * d->parts * (size_t)a->G + g) * d->num_queries + n) * partial_floats(d);
    float max = -INFINITY, total = 0;
    for (size_t p = 0; p < d->parts; p++)
        max = first[p * each + d->row] > max ? first[p * each + d->row] : max;
    for (size_t p = 0; p < d->parts; p++) {
        const float *sums = first + p * each;
        float weight = sums[d->row] == -INFINITY ? 0 : vector_exp(sums[d->row] - max);
        total += weight * sums[d->row + 1];
        for (size_t k = 0; k < filled; k++) first[k] = (p ? first[k] : 0) + weight * sums[k];
    }
    float inverse = total == 0 ? 0 : 1 / total;
    for (size_t k = 0; k < filled; k++) first[k] *= inverse;
    d->io->lse_BHT[(b * (size_t)a->H + h) * T + t] = max + logf(total);
    store_row(d->io->out_BTHK, ((b * T + t) * (size_t)a->H + h) * (size_t)a->K, a->dtype,
              (size_t)a->K, first);
}

static void run_task(const struct decode_attention *d, size_t task)
{
    const struct attention *a = d->a;
    size_t G = (size_t)a->G, K = (size_t)a->K, T = (size_t)a->T, heads = (size_t)(a->H / a->G);
    size_t g = task % G, part = task / G % d->parts, b = task / G / d->parts;
    size_t first_key = b * (size_t)a->S * a->kv_stride + g * K;
    float *queries = d->scratch + (size_t)omp_get_thread_num() * scratch_floats(d);
    float *partials = d->partials + task * d->num_queries * partial_floats(d);
    memset(queries, 0, d->num_queries * d->row * sizeof *queries);
    for (size_t n = 0; n < heads * T; n++) {
        size_t token = b * T + n / heads;
        vector_load_row(d->io->q_BTHK, token * a->q_stride + (g * heads + n % heads) * K, a->dtype,
                        K, queries + n * d->row);
    }
    for (size_t n = 0; n < heads * T; n += QUERIES) {
        struct part_keys keys = find_keys(d, b, part, n);
        float *to = partials + n * partial_floats(d), *from = queries + n * d->row;
        if (a->dtype == F32)
            attend_part(d, F32, first_key, &keys, from, to);
        else
            attend_part(d, BF16, first_key, &keys, from, to);
    }
    if (d->parts > 1) return;
    for (size_t n = 0; n < heads * T; n++) merge_parts(d, b, g, n);
}

enum status KERNEL(attention_decode)(const struct attention *a, const struct attention_fwd *io,
                                     struct queue *queue)
{
    size_t G = (size_t)a->G, queries = (size_t)(a->H / a->G * a->T);
    size_t mark = arena_mark(&queue->scratch);
    struct decode_attention d = {.a = a, .io = io, .parts = ((size_t)a->S + PART - 1) / PART};
    d.num_queries = (queries + QUERIES - 1) / QUERIES * QUERIES;
    d.row = ((size_t)a->K + PAIR - 1) / PAIR * PAIR;
    size_t tasks = (size_t)a->B * G * d.parts, outputs = (size_t)a->B * G * queries;
    d.partials =
        arena_alloc(&queue->scratch, tasks * d.num_queries * partial_floats(&d), sizeof(float));
    d.scratch = arena_alloc(&queue->scratch, (size_t)queue->num_threads * scratch_floats(&d),
                            sizeof(float));
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
#pragma omp parallel num_threads(queue->num_threads)
    {
#pragma omp for schedule(static) nowait
        for (size_t task = 0; task < tasks; task++) run_task(&d, task);
        if (d.parts > 1) {
#pragma omp barrier
#pragma omp for schedule(static) nowait
            for (size_t i = 0; i < outputs; i++)
                merge_parts(&d, i / queries / G, i / queries % G, i % queries);
        }
    }
    return STATUS_OK;
}
