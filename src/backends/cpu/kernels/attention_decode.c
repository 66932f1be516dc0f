// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_decode.h"

#include "backends/cpu/kernels/attention_decode_tiles.h"
#include "backends/cpu/kernels/attention_mask.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"

#include <math.h>
#include <omp.h>

enum {
    QUERIES = DECODE_QUERIES,    /* that share a key/value head and are computed together */
    KEYS = LANES / 4,            /* whose scores with these queries fill a register */
    PAIR = 2 * LANES,            /* elements of a head that are loaded at a time */
    PAIRS = LANES == 16 ? 2 : 1, /* of these, of the output, that registers hold */
    PART = 512,                  /* keys of a task, at most */
    BLOCK = DECODE_KEYS,         /* keys that a task visits for one head after the other */
    ROW_ELEMENTS = 512,          /* of keys, that a task reads from each token, at most */
    TASK_GROUPS = 16,            /* of queries, at most, unless one head has more */
};

/* One call.  A task is a part of the keys of a row, for some key/value heads.  All query heads that
 * use one, and all T queries of these, are its queries n = t * (H/G) + head.  It visits the keys
 * block by block, and in each block one head after the other: reading memory in order is faster. */
struct decode_attention {
    const struct attention *a;
    const struct attention_fwd *io;
    size_t max_parts;   /* of the keys of a row */
    size_t heads;       /* key/value heads of a task; divides G */
    size_t num_queries; /* of a head, rounded up to QUERIES */
    size_t row;         /* K, rounded up to PAIR: of a query, and of a sum of values */
    float *partials; /* of each part, head and query: sum of values, max of scores, sum of probs */
    struct query_group *units; /* of each thread: all groups of queries of a task */
    float *scratch;            /* of each unit */
    bool tiled;                /* with AMX */
};

/* QUERIES queries of a head, from query n on. */
struct query_group {
    size_t g, n;
    float *queries;  /* [QUERIES][row] in the order of vector_get_two; or tiles */
    float *scores;   /* [keys][QUERIES] */
    float *sums;     /* of values, with tiles; else they are added to the partials */
    float *partials; /* of the first query */
};

static size_t partial_floats(const struct decode_attention *d) { return d->row + 2; }

static size_t units_per_task(const struct decode_attention *d)
{
    return d->heads * d->num_queries / QUERIES;
}

/* The keys that any query of row b sees, and into how many parts of equal length they are divided:
 * that depends on their number alone. */
struct row_keys {
    size_t begin, end, parts;
};

static struct row_keys find_row_keys(const struct decode_attention *d, size_t b)
{
    const struct attention *a = d->a;
    const struct mask_source source = {a, d->io->start_BT, d->io->end_BT};
    int32_t begin = a->S, end = 0;
    for (size_t t = 0; t < (size_t)a->T; t++) {
        struct key_range range = visible_keys(&source, b, t);
        if (range.begin >= range.end) continue;
        if (range.begin < begin) begin = range.begin;
        if (range.end > end) end = range.end;
    }
    if (begin < 0) begin = 0;
    if (end > a->S) end = a->S;
    if (begin >= end) return (struct row_keys){0, 0, 1};
    return (struct row_keys){(size_t)begin, (size_t)end, ((size_t)(end - begin) + PART - 1) / PART};
}

/* A task: keys [begin, end) of row b, and key/value heads from g on. */
struct part {
    size_t b, i, g, begin, end;
    const struct part *after; /* probably this thread's next task */
};

/* Returns whether the row has so many parts. */
static bool find_part(const struct decode_attention *d, size_t task, struct part *part)
{
    size_t G = (size_t)d->a->G, i = task / (G / d->heads);
    *part = (struct part){
        .b = i / d->max_parts, .i = i % d->max_parts, .g = task % (G / d->heads) * d->heads};
    if (part->b >= (size_t)d->a->B) return false;
    struct row_keys keys = find_row_keys(d, part->b);
    size_t count = keys.end - keys.begin;
    part->begin = keys.begin + count * part->i / keys.parts;
    part->end = keys.begin + count * (part->i + 1) / keys.parts;
    return part->i < keys.parts;
}

/* Where the keys and values of a token of the part begin: an element. */
static size_t key_element(const struct decode_attention *d, const struct part *part, size_t g,
                          size_t key)
{
    const struct attention *a = d->a;
    return (part->b * (size_t)a->S + key) * a->kv_stride + g * (size_t)a->K;
}

/* Where query n of a head begins. */
static size_t query_element(const struct decode_attention *d, size_t b, size_t g, size_t n)
{
    const struct attention *a = d->a;
    size_t heads = (size_t)(a->H / a->G), token = b * (size_t)a->T + n / heads;
    return token * a->q_stride + (g * heads + n % heads) * (size_t)a->K;
}

/* Some keys or values of a head, from element `at` of x on, and what will probably be read after
 * them: it is prefetched. */
struct key_block {
    const void *x, *next;
    size_t at, next_at, count;
};

enum pass { PASS_KEYS, PASS_VALUES };

/* Block at key s of the part. */
static struct key_block find_block(const struct decode_attention *d, const struct part *part,
                                   enum pass pass, size_t s, size_t g)
{
    const void *k = d->io->k_BSGK, *v = d->io->v_BSGK;
    size_t left = part->end - part->begin - s;
    struct key_block b = {.x = pass == PASS_KEYS ? k : v,
                          .at = key_element(d, part, g, part->begin + s),
                          .count = size_min(BLOCK, left)};
    b.next = b.x, b.next_at = b.at + BLOCK * d->a->kv_stride;
    if (left > BLOCK) return b;
    if (pass == PASS_KEYS)
        b.next = v, b.next_at = key_element(d, part, g, part->begin);
    else
        b.next = k,
        b.next_at = key_element(d, part->after, g - part->g + part->after->g, part->after->begin);
    return b;
}

/* --- vectors --- */

static void load_queries(const struct decode_attention *d, size_t b, const struct query_group *u)
{
    size_t queries = (size_t)(d->a->H / d->a->G) * (size_t)d->a->T;
    memset(u->queries, 0, QUERIES * d->row * sizeof *u->queries);
    for (size_t q = 0; q < QUERIES && u->n + q < queries; q++)
        vector_load_row(d->io->q_BTHK, query_element(d, b, u->g, u->n + q), d->a->dtype,
                        (size_t)d->a->K, u->queries + q * d->row);
}

/* Prefetches PAIR elements of the key that comes BLOCK keys after key s. */
static inline void prefetch_pair(const struct decode_attention *d, enum dtype dtype,
                                 const struct key_block *b, size_t s, size_t k)
{
    size_t at = b->next_at + s * d->a->kv_stride + k;
    vector_prefetch(b->next, at, dtype);
    if (dtype == F32) vector_prefetch(b->next, at + LANES, dtype);
}

/* Scores of KEYS keys from key s of the block on: [KEYS][QUERIES].  Past the end: of the last. */
static inline __attribute__((always_inline)) vector score_keys(const struct decode_attention *d,
                                                               enum dtype dtype,
                                                               const struct key_block *b, size_t s,
                                                               const float *queries)
{
    size_t K = (size_t)d->a->K, k = 0, at[KEYS];
    vector sums[LANES] = {0};
    for (size_t i = 0; i < KEYS; i++)
        at[i] = b->at + size_min(s + i, b->count - 1) * d->a->kv_stride;
    for (; k + PAIR <= K; k += PAIR)
        for (size_t i = 0; i < KEYS; i++) {
            struct vectors key = vector_get_two(b->x, at[i] + k, dtype);
            prefetch_pair(d, dtype, b, s + i, k);
            for (size_t q = 0; q < QUERIES; q++) {
                const float *query = queries + q * d->row + k;
                sums[i * QUERIES + q] += key.a * vector_loadu(query);
                sums[i * QUERIES + q] += key.b * vector_loadu(query + LANES);
            }
        }
    for (; k < K; k += LANES)
        for (size_t i = 0; i < KEYS; i++) {
            vector key = vector_get(b->x, at[i] + k, dtype, size_min(LANES, K - k));
            for (size_t q = 0; q < QUERIES; q++)
                sums[i * QUERIES + q] += key * vector_loadu(queries + q * d->row + k);
        }
    return d->a->scale * vector_reduce_sums(sums);
}

static inline __attribute__((always_inline)) void score_block(const struct decode_attention *d,
                                                              enum dtype dtype,
                                                              const struct key_block *b,
                                                              const float *queries, float *scores)
{
    for (size_t s = 0; s < b->count; s += KEYS)
        vector_storeu(scores + s * QUERIES, score_keys(d, dtype, b, s, queries));
}

/* Adds the values of a block, weighted by the probs [keys][QUERIES], to sums; from column k on,
 * `pairs` pairs of registers of each query. */
static inline __attribute__((always_inline)) void
add_values(const struct decode_attention *d, enum dtype dtype, const struct key_block *b,
           const float *probs, float *sums, size_t k, size_t pairs)
{
    vector out[QUERIES][2 * PAIRS];
    size_t at = b->at + k, stride = d->a->kv_stride;
    for (size_t q = 0; q < QUERIES; q++)
        for (size_t i = 0; i < 2 * pairs; i++)
            out[q][i] = vector_loadu(sums + q * partial_floats(d) + k + i * LANES);
    for (size_t s = 0; s < b->count; s++, at += stride, probs += QUERIES)
        for (size_t p = 0; p < pairs; p++) {
            struct vectors v = vector_get_two(b->x, at + p * PAIR, dtype);
            prefetch_pair(d, dtype, b, s, k + p * PAIR);
            for (size_t q = 0; q < QUERIES; q++)
                out[q][2 * p] += probs[q] * v.a, out[q][2 * p + 1] += probs[q] * v.b;
        }
    for (size_t q = 0; q < QUERIES; q++)
        for (size_t i = 0; i < 2 * pairs; i++)
            vector_storeu(sums + q * partial_floats(d) + k + i * LANES, out[q][i]);
}

/* The columns of a head that fill no pair. */
static void add_last_values(const struct decode_attention *d, const struct key_block *b,
                            const float *probs, float *sums, size_t k)
{
    size_t width = size_min(LANES, (size_t)d->a->K - k);
    vector out[QUERIES];
    for (size_t q = 0; q < QUERIES; q++) out[q] = vector_loadu(sums + q * partial_floats(d) + k);
    for (size_t s = 0; s < b->count; s++, probs += QUERIES) {
        vector v = vector_get(b->x, b->at + k + s * d->a->kv_stride, d->a->dtype, width);
        for (size_t q = 0; q < QUERIES; q++) out[q] += probs[q] * v;
    }
    for (size_t q = 0; q < QUERIES; q++) vector_storeu(sums + q * partial_floats(d) + k, out[q]);
}

static inline __attribute__((always_inline)) void add_block(const struct decode_attention *d,
                                                            enum dtype dtype,
                                                            const struct key_block *b,
                                                            const float *probs, float *sums)
{
    size_t K = (size_t)d->a->K, k = 0;
    for (; k + PAIRS * PAIR <= K; k += PAIRS * PAIR) add_values(d, dtype, b, probs, sums, k, PAIRS);
    for (; k + PAIR <= K; k += PAIR) add_values(d, dtype, b, probs, sums, k, 1);
    for (; k < K; k += LANES) add_last_values(d, b, probs, sums, k);
}

/* --- vectors or tiles --- */

static void begin_unit(const struct decode_attention *d, size_t b, const struct query_group *u)
{
    const struct attention *a = d->a;
    size_t queries = (size_t)(a->H / a->G) * (size_t)a->T;
    const bf16 *rows[QUERIES] = {0};
    memset(u->partials, 0, QUERIES * partial_floats(d) * sizeof *u->partials);
    if (!d->tiled) {
        load_queries(d, b, u);
        return;
    }
    for (size_t q = 0; q < QUERIES && u->n + q < queries; q++)
        rows[q] = (const bf16 *)d->io->q_BTHK + query_element(d, b, u->g, u->n + q);
    KERNEL(attention_decode_begin)(rows, (size_t)a->K, u->queries, u->sums);
}

/* A unit prefetches its share of the tokens that follow, for all heads of the task. */
static struct decode_tiles tiles_of(const struct decode_attention *d, const struct key_block *b,
                                    const struct query_group *u)
{
    size_t K = (size_t)d->a->K, stride = d->a->kv_stride, units = units_per_task(d);
    size_t head = u->g % d->heads, i = head * (units / d->heads) + u->n / QUERIES;
    size_t begin = BLOCK * i / units, end = BLOCK * (i + 1) / units;
    return (struct decode_tiles){.keys = (const bf16 *)b->x + b->at,
                                 .K = K,
                                 .count = b->count,
                                 .stride = stride,
                                 .next =
                                     (const bf16 *)b->next + b->next_at - head * K + begin * stride,
                                 .next_width = d->heads * K,
                                 .next_count = end - begin};
}

static void score_unit(const struct decode_attention *d, const struct key_block *b,
                       const struct query_group *u, float *scores)
{
    struct decode_tiles tiles;
    if (d->tiled) {
        tiles = tiles_of(d, b, u);
        KERNEL(attention_decode_scores)(&tiles, d->a->scale, u->queries, scores);
    } else if (d->a->dtype == F32)
        score_block(d, F32, b, u->queries, scores);
    else
        score_block(d, BF16, b, u->queries, scores);
}

static void add_unit(const struct decode_attention *d, const struct key_block *b,
                     const struct query_group *u, const float *probs)
{
    struct decode_tiles tiles;
    if (d->tiled) {
        tiles = tiles_of(d, b, u);
        KERNEL(attention_decode_values)(&tiles, probs, u->sums);
    } else if (d->a->dtype == F32)
        add_block(d, F32, b, probs, u->partials);
    else
        add_block(d, BF16, b, probs, u->partials);
}

/* --- softmax --- */

/* Sets scores of the part to -inf where a query does not see the key. */
static void mask_scores(const struct decode_attention *d, const struct part *part,
                        const struct query_group *u)
{
    const struct attention *a = d->a;
    const struct mask_source source = {a, d->io->start_BT, d->io->end_BT};
    size_t heads = (size_t)(a->H / a->G), count = part->end - part->begin,
           stored = (count + KEYS - 1) / KEYS * KEYS;
    int32_t first = (int32_t)part->begin;
    for (size_t q = 0; q < QUERIES; q++) {
        struct key_range range = {0, 0};
        if (u->n + q < heads * (size_t)a->T)
            range = visible_keys(&source, part->b, (u->n + q) / heads);
        size_t begin = range.begin > first ? (size_t)(range.begin - first) : 0;
        size_t end = range.end > first ? size_min((size_t)(range.end - first), count) : 0;
        for (size_t s = 0; s < size_min(begin, stored); s++) u->scores[s * QUERIES + q] = -INFINITY;
        for (size_t s = end; s < stored; s++) u->scores[s * QUERIES + q] = -INFINITY;
    }
}

/* Turns scores of `count` keys into exp(score - max), for tiles rounded to bf16.  Stores the max
 * and the sum of each query, `stride` floats apart. */
static void softmax_part(const struct decode_attention *d, size_t count, float *scores, float *sums,
                         size_t stride)
{
    enum dtype dtype = d->a->dtype, stored = d->tiled ? BF16 : F32;
    vector max = vector_broadcast(-INFINITY), sum = {0};
    for (size_t s = 0; s < count; s += KEYS)
        max = vector_max(max, vector_loadu(scores + s * QUERIES));
    for (size_t q = 0; q < QUERIES; q++) {
        float largest = max[q];
        for (size_t i = q; i < LANES; i += QUERIES) largest = max[i] > largest ? max[i] : largest;
        for (size_t i = q; i < LANES; i += QUERIES) max[i] = largest > -INFINITY ? largest : 0;
        sums[q * stride] = largest;
    }
    for (size_t s = 0; s < count; s += KEYS) {
        vector probs = vector_exps(dtype, vector_loadu(scores + s * QUERIES) - max);
        probs = vector_round_to(stored, probs);
        sum += probs;
        vector_storeu(scores + s * QUERIES, probs);
    }
    for (size_t q = 0; q < QUERIES; q++) {
        float total = 0;
        for (size_t i = q; i < LANES; i += QUERIES) total += sum[i];
        sums[q * stride + 1] = total;
    }
}

/* --- tasks --- */

/* `next` is probably this thread's next task. */
static void run_task(const struct decode_attention *d, size_t task, size_t next)
{
    size_t num_units = units_per_task(d), groups = num_units / d->heads, G = (size_t)d->a->G;
    struct query_group *units = d->units + (size_t)omp_get_thread_num() * num_units;
    struct part part, after;
    if (!find_part(d, task, &part)) return;
    if (!find_part(d, next, &after)) after = part;
    part.after = &after;
    size_t count = part.end - part.begin;
    for (size_t i = 0; i < num_units; i++) {
        struct query_group *u = units + i;
        u->g = part.g + i / groups, u->n = i % groups * QUERIES;
        size_t query = ((part.b * d->max_parts + part.i) * G + u->g) * d->num_queries + u->n;
        u->partials = d->partials + query * partial_floats(d);
        begin_unit(d, part.b, u);
    }
    for (size_t s = 0; s < count; s += BLOCK)
        for (struct query_group *u = units; u < units + num_units; u++) {
            struct key_block b = find_block(d, &part, PASS_KEYS, s, u->g);
            score_unit(d, &b, u, u->scores + s * QUERIES);
        }
    for (struct query_group *u = units; u < units + num_units; u++) {
        mask_scores(d, &part, u);
        softmax_part(d, count, u->scores, u->partials + d->row, partial_floats(d));
    }
    for (size_t s = 0; s < count; s += BLOCK)
        for (struct query_group *u = units; u < units + num_units; u++) {
            struct key_block b = find_block(d, &part, PASS_VALUES, s, u->g);
            add_unit(d, &b, u, u->scores + s * QUERIES);
        }
    for (struct query_group *u = units; u < units + num_units && d->tiled; u++)
        KERNEL(attention_decode_end)(u->sums, (size_t)d->a->K, u->partials, partial_floats(d));
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
    size_t filled = ((size_t)a->K + LANES - 1) / LANES * LANES, parts = find_row_keys(d, b).parts;
    float *first = d->partials +
                   ((b * d->max_parts * (size_t)a->G + g) * d->num_queries + n) * partial_floats(d);
    float max = -INFINITY, total = 0;
    for (size_t p = 0; p < parts; p++)
        max = first[p * each + d->row] > max ? first[p * each + d->row] : max;
    for (size_t p = 0; p < parts; p++) {
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

/* Of a unit: queries, sums, and scores. */
struct unit_floats {
    size_t queries, sums, scores, all;
};

/* Padded by a page: hardware prefetch must not cause false sharing between threads. */
static struct unit_floats unit_floats_of(const struct decode_attention *d)
{
    enum { LINE = 16, PADDING = 1024 };
    size_t K = (size_t)d->a->K;
    struct unit_floats f = {.queries = d->tiled ? DECODE_QUERY_FLOATS * K : QUERIES * d->row,
                            .sums = d->tiled ? DECODE_SUM_FLOATS(K) : 0,
                            .scores = (PART + BLOCK) * QUERIES};
    f.queries = (f.queries + LINE - 1) / LINE * LINE;
    f.all = f.queries + f.sums + f.scores + PADDING;
    return f;
}

static void alloc_units(struct decode_attention *d, struct queue *queue)
{
    struct unit_floats each = unit_floats_of(d);
    size_t units = (size_t)queue->num_threads * units_per_task(d);
    d->units = arena_alloc(&queue->scratch, units, sizeof *d->units);
    d->scratch = arena_alloc(&queue->scratch, units * each.all, sizeof(float));
    for (size_t i = 0; i < units && !queue->sizing; i++) {
        float *at = d->scratch + i * each.all;
        d->units[i] = (struct query_group){
            .queries = at, .sums = at + each.queries, .scores = at + each.queries + each.sums};
    }
}

/* How many key/value heads are visited together.  One, if there are few parts: then threads take
 * heads. */
static size_t choose_heads(const struct decode_attention *d, int num_threads)
{
    const struct attention *a = d->a;
    size_t groups = d->num_queries / QUERIES, parts = (size_t)a->B * d->max_parts;
    size_t heads = size_min(ROW_ELEMENTS / (size_t)a->K, TASK_GROUPS / groups);
    if (parts < 8 * (size_t)num_threads || heads == 0) return 1;
    heads = size_min(heads, (size_t)a->G);
    while ((size_t)a->G % heads) heads--;
    return heads;
}

enum status KERNEL(attention_decode)(const struct attention *a, const struct attention_fwd *io,
                                     struct queue *queue)
{
    size_t G = (size_t)a->G, queries = (size_t)(a->H / a->G * a->T);
    size_t mark = arena_mark(&queue->scratch), threads = (size_t)queue->num_threads;
    struct decode_attention d = {.a = a, .io = io, .max_parts = ((size_t)a->S + PART - 1) / PART};
    d.num_queries = (queries + QUERIES - 1) / QUERIES * QUERIES;
    d.row = ((size_t)a->K + PAIR - 1) / PAIR * PAIR;
    d.tiled = KERNEL(attention_decode_tiles_used)(a);
    d.heads = choose_heads(&d, queue->num_threads);
    size_t parts = (size_t)a->B * d.max_parts, tasks = parts * (G / d.heads);
    d.partials =
        arena_alloc(&queue->scratch, parts * G * d.num_queries * partial_floats(&d), sizeof(float));
    alloc_units(&d, queue);
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
#pragma omp parallel num_threads(queue->num_threads)
    {
        tiles_open();
#pragma omp for schedule(dynamic)
        for (size_t task = 0; task < tasks; task++) run_task(&d, task, task + threads);
#pragma omp for schedule(static) nowait
        for (size_t i = 0; i < (size_t)a->B * G * queries; i++)
            merge_parts(&d, i / queries / G, i / queries % G, i % queries);
        tiles_close();
    }
    return STATUS_OK;
}
