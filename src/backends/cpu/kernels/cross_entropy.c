/* cross_entropy.c (cpu) -- two passes over a row: its log-sum-exp, and the gradient, each an
 * exponential an element, which is what bounds them.
 *
 * The first pass takes exponentials of what logits are above the largest of the row's first piece:
 * the sum is as exact with that as with the largest of all, and where it might overflow, or the
 * first piece is all -inf, the pass is done once more. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>

/* Elements of the first piece, and of one partial sum in f32; what a sum of 2^31 e^MOST is, f32
 * can hold. */
enum { PIECE = 512, MOST = 60 };

/* Elements of a pass that go together; for each two a pass asks for one of the next row, the first
 * pass for its first half. */
enum { STEP = 4 * LANES };

/* n elements, at most LANES; -inf behind them. */
static inline vector logits_at(const void *logits, size_t at, enum dtype dtype, size_t n)
{
    vector x = vector_get(logits, at, dtype, n);
    for (size_t i = n; i < LANES; i++) x[i] = -INFINITY;
    return x;
}

static inline float top_of(enum dtype dtype, const void *logits, size_t row, size_t n)
{
    vector top = vector_all(-INFINITY);
    size_t v = 0;
    for (; v + LANES <= n; v += LANES)
        top = vector_max(logits_at(logits, row + v, dtype, LANES), top);
    if (v < n) top = vector_max(logits_at(logits, row + v, dtype, n - v), top);
    return vector_top(top);
}

/* What the sum of a piece and the largest logit become with x. */
static inline void take(enum dtype dtype, vector x, float base, vector *here, vector *most)
{
    *most = vector_max(x, *most);
    *here += vector_exps(dtype, x - base);
}

/* Sum of e^(x - base) over the row; *top becomes the largest. */
static inline double sum_above(const struct cross_entropy *a, enum dtype dtype, const void *logits,
                               size_t row, float base, float *top)
{
    size_t V = (size_t)a->V;
    vector most = vector_all(-INFINITY);
    double sum = 0;
    for (size_t begin = 0; begin < V; begin += PIECE) {
        size_t end = V - begin < PIECE ? V : begin + PIECE, v = begin;
        vector here = {0};
        for (; v + STEP <= end; v += STEP) {
            vector_ask(logits, row + V + v / 2, dtype);
            for (size_t i = 0; i < STEP; i += 2 * LANES) {
                struct vectors x = vector_get_two(logits, row + v + i, dtype);
                take(dtype, x.a, base, &here, &most);
                take(dtype, x.b, base, &here, &most);
            }
        }
        for (; v < end; v += LANES) {
            size_t n = end - v < LANES ? end - v : LANES;
            take(dtype, logits_at(logits, row + v, dtype, n), base, &here, &most);
        }
        sum += (double)vector_sum(here);
    }
    *top = vector_top(most);
    return sum;
}

static inline float log_sum(const struct cross_entropy *a, enum dtype dtype, const void *logits,
                            size_t row, float *top)
{
    float base = top_of(dtype, logits, row, a->V < PIECE ? (size_t)a->V : PIECE);
    double sum = sum_above(a, dtype, logits, row, base, top);
    if (!(*top - base <= MOST)) {
        base = *top;
        sum = sum_above(a, dtype, logits, row, base, top);
    }
    return base + (float)log(sum);
}

/* The first place where the row is x; 0 where it is nowhere. */
static int32_t place_of(const struct cross_entropy *a, const void *logits, size_t row, float x)
{
    size_t V = (size_t)a->V;
    float here[PIECE];
    for (size_t v = 0; v < V; v += PIECE) {
        size_t n = V - v < PIECE ? V - v : PIECE, found = n;
        vector_load(logits, row + v, a->dtype, n, here);
        for (size_t i = n; i-- > 0;) found = here[i] == x ? i : found;
        if (found < n) return (int32_t)(v + found);
    }
    return 0;
}

struct shift {
    float lse, scale, log2; /* log2: what both make of a power of two */
};

/* e^(x - lse) * scale */
static inline vector slope(enum dtype dtype, vector x, struct shift by)
{
    if (dtype == F32) return vector_exact_exp(x - by.lse) * by.scale;
    return vector_quick_exp2(x * 1.44269504f - by.log2);
}

static inline void gradient(const struct cross_entropy *a, enum dtype dtype, void *logits,
                            size_t row, float lse, int32_t label)
{
    size_t V = (size_t)a->V, v = 0, chosen = row + (size_t)(label - a->first);
    struct shift by = {.lse = lse, .scale = label == LABEL_IGNORED ? 0 : a->scale};
    bool here = label_is_here(a, label);
    float x = 0;
    by.log2 = (float)(((double)lse - log((double)by.scale)) * 1.4426950408889634);
    if (here) vector_load(logits, chosen, dtype, 1, &x);
    for (; v + STEP <= V; v += STEP) {
        vector_ask(logits, row + V + (V + v) / 2, dtype);
        for (size_t i = 0; i < STEP; i += 2 * LANES) {
            struct vectors two = vector_get_two(logits, row + v + i, dtype);
            two.a = slope(dtype, two.a, by), two.b = slope(dtype, two.b, by);
            vector_set_two(logits, row + v + i, dtype, two);
        }
    }
    for (; v < V; v += LANES) {
        size_t n = V - v < LANES ? V - v : LANES;
        vector_set(logits, row + v, dtype, n,
                   slope(dtype, vector_get(logits, row + v, dtype, n), by));
    }
    if (!here) return;
    x = vector_exp(x - lse) * by.scale - by.scale; /* exact: the difference of two like numbers */
    vector_store(logits, chosen, dtype, 1, &x);
}

/* One row; a dtype that the compiler knows makes each loop one of its own. */
static inline void row_of(const struct cross_entropy *a, enum dtype dtype,
                          const struct cross_entropy_io *io, size_t n)
{
    size_t row = n * (size_t)a->V;
    int32_t label = io->labels_N[n];
    float lse, top, chosen = -INFINITY, *stats = io->stats_PN4;
    if (a->step == LOSS_JOINED) {
        lse = loss_join(a, io, n);
    } else {
        lse = log_sum(a, dtype, io->logits_NV, row, &top);
        if (label_is_here(a, label))
            vector_load(io->logits_NV, row + (size_t)(label - a->first), dtype, 1, &chosen);
        int32_t best = 0;
        if (a->step == LOSS_STATS || io->best_N)
            best = a->first + place_of(a, io->logits_NV, row, top);
        if (a->step == LOSS_STATS) {
            stats += n * LOSS_STATS_COUNT;
            stats[STAT_LSE] = lse, stats[STAT_TOP] = top;
            stats[STAT_BEST] = (float)best, stats[STAT_CHOSEN] = chosen;
            return;
        }
        io->loss_N[n] = label == LABEL_IGNORED ? 0 : lse - chosen;
        if (io->best_N) io->best_N[n] = best;
    }
    if (a->gradient) gradient(a, dtype, io->logits_NV, row, lse, label);
}

enum status KERNEL(cross_entropy)(const struct cross_entropy *a, const struct cross_entropy_io *io,
                                  struct queue *on)
{
    if (on->measuring) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t n = 0; n < (size_t)a->N; n++)
        if (a->dtype == F32)
            row_of(a, F32, io, n);
        else
            row_of(a, BF16, io, n);
    return STATUS_OK;
}
