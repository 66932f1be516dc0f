/* cross_entropy.c (cpu) -- two passes over a row of logits: its log-sum-exp, and its gradient. Each
 * takes one exponential per element, which bounds the speed.
 *
 * The first pass subtracts the max of the row's first chunk instead of the row max; the sum is as
 * exact.  It is repeated with the row max where it might overflow, or where the first chunk is all
 * -inf.
 *
 * In the panel layout several rows are processed together, since their cache lines are adjacent. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>

/* Elements of the first chunk, and of one f32 partial sum. f32 can represent a sum of 2^31
 * e^MAX_EXPONENT. */
enum { CHUNK = 512, MAX_EXPONENT = 60 };

/* Elements per unrolled iteration.  Each pass prefetches half of the next row: the first pass its
 * first half. */
enum { UNROLL = 4 * LANES };

/* Rows of a panel processed together, and the prefetch distance in columns.  The first pass visits
 * a panel chunk by chunk, the second backwards, so that it finds the last chunks in the cache. */
enum { ROW_GROUP = 4, PREFETCH_AHEAD = 768 };

/* One row of logits, or a panel of rows. */
struct logit_rows {
    const struct cross_entropy *a;
    enum dtype dtype;
    bool paneled; /* in the panel layout */
    void *logits;
    size_t first, rows; /* 1, or PANEL */
};

static inline size_t logit_offset(struct logit_rows k, size_t i, size_t v)
{
    return panel_offset(k.paneled, k.first + i, v, (size_t)cross_entropy_row(k.a));
}

/* Loads n logits of row i, at most LANES; the other lanes are -inf. */
static inline vector load_logits(struct logit_rows k, size_t i, size_t v, size_t n)
{
    vector x = vector_get(k.logits, logit_offset(k, i, v), k.dtype, n);
    for (size_t j = n; j < LANES; j++) x[j] = -INFINITY;
    return x;
}

/* Over the first n logits of row i. */
static inline float max_logit(struct logit_rows k, size_t i, size_t n)
{
    vector row_max = vector_broadcast(-INFINITY);
    size_t v = 0;
    for (; v + LANES <= n; v += LANES) row_max = vector_max(load_logits(k, i, v, LANES), row_max);
    if (v < n) row_max = vector_max(load_logits(k, i, v, n - v), row_max);
    return vector_reduce_max(row_max);
}

/* Adds e^(x - base) to the sum and updates the maxima. */
static inline void accumulate_exp(enum dtype dtype, vector x, float base, vector *sum,
                                  vector *maxima)
{
    *maxima = vector_max(x, *maxima);
    *sum += vector_exps(dtype, x - base);
}

/* Rows that are processed together. */
static inline size_t group_of(struct logit_rows k) { return k.paneled ? ROW_GROUP : 1; }

/* For each row: the sum of e^(x - base), and maxima per lane. */
struct exp_sums {
    float base[PANEL];
    double sum[PANEL];
    vector maxima[PANEL];
};

/* Adds columns [v, end) of the group of rows that starts with row i. */
static inline void sum_exp_chunk(struct logit_rows k, size_t i, size_t v, size_t end,
                                 struct exp_sums *s)
{
    const size_t count = group_of(k);
    const float *base = s->base + i;
    vector sum[ROW_GROUP], row_max[ROW_GROUP];
#pragma GCC unroll 4
    for (size_t n = 0; n < count; n++) sum[n] = vector_broadcast(0), row_max[n] = s->maxima[i + n];
    for (; v + UNROLL <= end; v += UNROLL) {
        if (!k.paneled)
            vector_prefetch(k.logits, (k.first + 1) * (size_t)cross_entropy_row(k.a) + v / 2,
                            k.dtype);
        for (size_t j = v; j < v + UNROLL; j += 2 * LANES) {
            size_t at = logit_offset(k, i, j);
#pragma GCC unroll 4
            for (size_t n = 0; n < count; n++, at += PANEL) {
                struct vectors x = vector_get_two(k.logits, at, k.dtype);
                if (k.paneled) vector_prefetch(k.logits, at + PREFETCH_AHEAD * PANEL, k.dtype);
                accumulate_exp(k.dtype, x.a, base[n], &sum[n], &row_max[n]);
                accumulate_exp(k.dtype, x.b, base[n], &sum[n], &row_max[n]);
            }
        }
    }
    for (; v < end; v += LANES)
        for (size_t n = 0; n < count; n++) {
            size_t n_left = end - v < LANES ? end - v : LANES;
            accumulate_exp(k.dtype, load_logits(k, i + n, v, n_left), base[n], &sum[n],
                           &row_max[n]);
        }
#pragma GCC unroll 4
    for (size_t n = 0; n < count; n++)
        s->sum[i + n] += (double)vector_reduce_sum(sum[n]), s->maxima[i + n] = row_max[n];
}

/* Sums over all columns, relative to s->base; row_max becomes the rows' maxima. */
static inline void sum_exp(struct logit_rows k, struct exp_sums *s, float *row_max)
{
    size_t V = (size_t)k.a->V;
    for (size_t i = 0; i < k.rows; i++) s->maxima[i] = vector_broadcast(-INFINITY), s->sum[i] = 0;
    for (size_t v = 0; v < V; v += CHUNK)
        for (size_t i = 0; i < k.rows; i += group_of(k))
            sum_exp_chunk(k, i, v, V - v < CHUNK ? V : v + CHUNK, s);
    for (size_t i = 0; i < k.rows; i++) row_max[i] = vector_reduce_max(s->maxima[i]);
}

static inline void log_sum_exp(struct logit_rows k, float *lse, float *row_max)
{
    size_t first = k.a->V < CHUNK ? (size_t)k.a->V : CHUNK;
    struct exp_sums s;
    bool redo = false;
    for (size_t i = 0; i < k.rows; i++) s.base[i] = max_logit(k, i, first);
    sum_exp(k, &s, row_max);
    for (size_t i = 0; i < k.rows; i++)
        if (!(row_max[i] - s.base[i] <= MAX_EXPONENT)) s.base[i] = row_max[i], redo = true;
    if (redo) sum_exp(k, &s, row_max);
    for (size_t i = 0; i < k.rows; i++) lse[i] = s.base[i] + (float)log(s.sum[i]);
}

/* The first index at which row i equals x; 0 if none does. */
static int32_t argmax(struct logit_rows k, size_t i, float x)
{
    size_t V = (size_t)k.a->V;
    float logits[PANEL];
    for (size_t v = 0; v < V; v += PANEL) {
        size_t n = V - v < PANEL ? V - v : PANEL, found = n;
        vector_load(k.logits, logit_offset(k, i, v), k.dtype, n, logits);
        for (size_t j = n; j-- > 0;) found = logits[j] == x ? j : found;
        if (found < n) return (int32_t)(v + found);
    }
    return 0;
}

struct softmax_scale {
    float lse, scale, log2_shift; /* log2_shift combines both for a power of two */
};

/* e^(x - lse) * scale */
static inline vector softmax_gradient(enum dtype dtype, vector x, struct softmax_scale by)
{
    if (dtype == F32) return vector_exact_exp(x - by.lse) * by.scale;
    return vector_fast_exp2(x * 1.44269504f - by.log2_shift);
}

/* Overwrites columns [v, end) of the group of rows that starts with row i with their gradients. */
static inline void gradient_chunk(struct logit_rows k, size_t i, size_t v, size_t end,
                                  const struct softmax_scale *scales)
{
    const size_t V = (size_t)k.a->V, row = (size_t)cross_entropy_row(k.a), count = group_of(k);
    struct softmax_scale scale[ROW_GROUP];
    for (size_t n = 0; n < count; n++) scale[n] = scales[i + n];
    for (; v + UNROLL <= end; v += UNROLL) {
        if (!k.paneled) vector_prefetch(k.logits, (k.first + 1) * row + (V + v) / 2, k.dtype);
        for (size_t j = v; j < v + UNROLL; j += 2 * LANES) {
            size_t at = logit_offset(k, i, j);
#pragma GCC unroll 4
            for (size_t n = 0; n < count; n++, at += PANEL) {
                struct vectors x = vector_get_two(k.logits, at, k.dtype);
                if (k.paneled && at > PREFETCH_AHEAD * PANEL)
                    vector_prefetch(k.logits, at - PREFETCH_AHEAD * PANEL, k.dtype);
                x.a = softmax_gradient(k.dtype, x.a, scale[n]),
                x.b = softmax_gradient(k.dtype, x.b, scale[n]);
                vector_set_two(k.logits, at, k.dtype, x);
            }
        }
    }
    for (; v < end; v += LANES)
        for (size_t n = 0; n < count; n++) {
            size_t n_left = end - v < LANES ? end - v : LANES, at = logit_offset(k, i + n, v);
            vector_set(k.logits, at, k.dtype, n_left,
                       softmax_gradient(k.dtype, vector_get(k.logits, at, k.dtype, n_left),
                                        scales[i + n]));
        }
}

/* Overwrites logits with their gradients, except for the labels' term. */
static inline void softmax_gradients(struct logit_rows k, const struct softmax_scale *scales)
{
    size_t V = (size_t)k.a->V;
    if (!k.paneled) {
        gradient_chunk(k, 0, 0, V, scales);
        return;
    }
    for (size_t end = V, v; end > 0; end = v) {
        v = (end - 1) / CHUNK * CHUNK;
        for (size_t i = 0; i < k.rows; i += ROW_GROUP) gradient_chunk(k, i, v, end, scales);
    }
}

/* Negates the gradients of row i, since softmax_gradients knows no sign. */
static inline void negate_row(struct logit_rows k, size_t i)
{
    size_t V = (size_t)k.a->V;
    for (size_t v = 0; v < V; v += LANES) {
        size_t n = V - v < LANES ? V - v : LANES, at = logit_offset(k, i, v);
        vector_set(k.logits, at, k.dtype, n, -vector_get(k.logits, at, k.dtype, n));
    }
}

/* Zeros the gradients of row i from column v on. */
static inline void zero_row(struct logit_rows k, size_t i, size_t v)
{
    for (; v < (size_t)cross_entropy_row(k.a); v++)
        vector_set(k.logits, logit_offset(k, i, v), k.dtype, 1, vector_broadcast(0));
}

/* The label's logit if this rank has it, else -inf. */
static inline float label_logit_of(struct logit_rows k, size_t i, int32_t label)
{
    float x = -INFINITY;
    if (cross_entropy_has_label(k.a, label))
        vector_load(k.logits, logit_offset(k, i, (size_t)(label - k.a->first)), k.dtype, 1, &x);
    return x;
}

static inline void gradients(struct logit_rows k, const struct cross_entropy_io *io,
                             const float *lse)
{
    struct softmax_scale scales[PANEL];
    float label_logit[PANEL], token_scale[PANEL];
    float scale[PANEL]; /* of the softmax; the z-loss can make it negative */
    const int32_t *labels = io->labels_N + k.first;
    for (size_t i = 0; i < k.rows; i++) {
        token_scale[i] = cross_entropy_scale(k.a, io) * cross_entropy_weight(io, k.first + i);
        scale[i] = token_scale[i] * cross_entropy_z_factor(k.a, lse[i]);
        if (labels[i] == LABEL_IGNORED) scale[i] = 0;
        scales[i] = (struct softmax_scale){lse[i], fabsf(scale[i]), 0};
        scales[i].log2_shift =
            (float)(((double)lse[i] - log((double)scales[i].scale)) * 1.4426950408889634);
        label_logit[i] = label_logit_of(k, i, labels[i]);
    }
    softmax_gradients(k, scales);
    for (size_t i = 0; i < k.rows; i++) {
        /* 0 times the exponential of a logit that is not finite is NaN */
        bool zero = labels[i] == LABEL_IGNORED && !isfinite(lse[i]);
        if (scale[i] < 0) negate_row(k, i);
        zero_row(k, i, zero ? 0 : (size_t)k.a->V);
    }
    for (size_t i = 0; i < k.rows; i++) {
        if (!cross_entropy_has_label(k.a, labels[i])) continue;
        size_t at = logit_offset(k, i, (size_t)(labels[i] - k.a->first));
        /* exact: the difference of two similar values */
        float x = vector_exp(label_logit[i] - lse[i]) * scale[i] - token_scale[i];
        vector_store(k.logits, at, k.dtype, 1, &x);
    }
}

/* Writes the requested outputs of row i. */
static inline void write_results(struct logit_rows k, const struct cross_entropy_io *io, size_t i,
                                 float lse, float row_max)
{
    const struct cross_entropy *a = k.a;
    size_t n = k.first + i;
    int32_t label = io->labels_N[n], best = 0;
    float label_logit = label_logit_of(k, i, label), *stats = io->stats_PN4;
    if (a->step == LOSS_STATS || io->argmax_N) best = a->first + argmax(k, i, row_max);
    if (a->step == LOSS_STATS) {
        stats += n * LOSS_STATS_COUNT;
        stats[STAT_LSE] = lse, stats[STAT_MAX] = row_max;
        stats[STAT_ARGMAX] = (float)best, stats[STAT_LABEL] = label_logit;
        return;
    }
    bool ignored = label == LABEL_IGNORED;
    io->loss_N[n] = ignored ? 0 : (lse - label_logit) * cross_entropy_weight(io, n);
    if (io->argmax_N) io->argmax_N[n] = best;
}

/* With constant dtype and row count the compiler specializes each loop. */
static inline void process_rows(struct logit_rows k, const struct cross_entropy_io *io)
{
    float lse[PANEL], row_max[PANEL];
    if (k.a->step == LOSS_FROM_STATS) {
        for (size_t i = 0; i < k.rows; i++) lse[i] = cross_entropy_merge(k.a, io, k.first + i);
    } else {
        log_sum_exp(k, lse, row_max);
        for (size_t i = 0; i < k.rows; i++) write_results(k, io, i, lse[i], row_max[i]);
    }
    if (k.a->gradient && k.a->step != LOSS_STATS) gradients(k, io, lse);
}

enum status KERNEL(cross_entropy)(const struct cross_entropy *a, const struct cross_entropy_io *io,
                                  struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    bool paneled = KERNEL(panel_layout_used)(a->is_packed, a->dtype, a->N, cross_entropy_row(a));
    size_t rows = paneled ? PANEL : 1;
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t n = 0; n < (size_t)a->N; n += rows)
        if (a->dtype == F32)
            process_rows((struct logit_rows){a, F32, false, io->logits_NV, n, 1}, io);
        else if (paneled)
            process_rows((struct logit_rows){a, BF16, true, io->logits_NV, n, PANEL}, io);
        else
            process_rows((struct logit_rows){a, BF16, false, io->logits_NV, n, 1}, io);
    return STATUS_OK;
}
