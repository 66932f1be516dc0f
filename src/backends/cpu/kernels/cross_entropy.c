/* cross_entropy.c (cpu) -- two passes over a row: its log-sum-exp, and the gradient, each an
 * exponential an element, which is what bounds them.
 *
 * The first pass takes exponentials of what logits are above the largest of the row's first piece:
 * the sum is as exact with that as with the largest of all, and where it might overflow, or the
 * first piece is all -inf, the pass is done once more.
 *
 * Where logits lie as panels, some rows go together: their lines follow each other. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>

/* Elements of the first piece, and of one partial sum in f32; what a sum of 2^31 e^MOST is, f32
 * can hold. */
enum { PIECE = 512, MOST = 60 };

/* Elements of a row's pass that go together.  For each two a pass asks for one of the next row, the
 * first pass for its first half. */
enum { TOGETHER = 4 * LANES };

/* Rows of a panel that go together; what is asked for beside an element is so many further on.  The
 * first pass goes over all rows of a panel piece by piece, and the second the other way, which
 * finds what the first has read last in the cache. */
enum { GROUP = 4, AHEAD = 768 };

/* Rows of logits, in memory. */
struct group {
    const struct cross_entropy *a;
    enum dtype dtype;
    bool kept; /* as panels */
    void *logits;
    size_t first, rows; /* 1, or PANEL */
};

static inline size_t at_of(struct group k, size_t i, size_t v)
{
    return panels_at(k.kept, k.first + i, v, (size_t)k.a->V);
}

/* n elements of row i, at most LANES; -inf behind them. */
static inline vector logits_at(struct group k, size_t i, size_t v, size_t n)
{
    vector x = vector_get(k.logits, at_of(k, i, v), k.dtype, n);
    for (size_t j = n; j < LANES; j++) x[j] = -INFINITY;
    return x;
}

/* Of the first n elements of row i. */
static inline float top_of(struct group k, size_t i, size_t n)
{
    vector top = vector_all(-INFINITY);
    size_t v = 0;
    for (; v + LANES <= n; v += LANES) top = vector_max(logits_at(k, i, v, LANES), top);
    if (v < n) top = vector_max(logits_at(k, i, v, n - v), top);
    return vector_top(top);
}

/* What the sum of a piece and the largest logit become with x. */
static inline void take(enum dtype dtype, vector x, float base, vector *here, vector *most)
{
    *most = vector_max(x, *most);
    *here += vector_exps(dtype, x - base);
}

/* Elements [v, end) of rows [i, i + count). */
static inline void sum_piece(struct group k, size_t i, size_t count, size_t v, size_t end,
                             const float *base, double *sums, vector *most)
{
    vector here[GROUP], top[GROUP];
#pragma GCC unroll 4
    for (size_t n = 0; n < count; n++) here[n] = vector_all(0), top[n] = most[i + n];
    for (; v + TOGETHER <= end; v += TOGETHER) {
        if (!k.kept) vector_ask(k.logits, (k.first + 1) * (size_t)k.a->V + v / 2, k.dtype);
        for (size_t j = v; j < v + TOGETHER; j += 2 * LANES) {
            size_t at = at_of(k, i, j);
#pragma GCC unroll 4
            for (size_t n = 0; n < count; n++, at += PANEL) {
                struct vectors x = vector_get_two(k.logits, at, k.dtype);
                if (k.kept) vector_ask(k.logits, at + AHEAD * PANEL, k.dtype);
                take(k.dtype, x.a, base[i + n], &here[n], &top[n]);
                take(k.dtype, x.b, base[i + n], &here[n], &top[n]);
            }
        }
    }
    for (; v < end; v += LANES)
        for (size_t n = 0; n < count; n++) {
            size_t some = end - v < LANES ? end - v : LANES;
            take(k.dtype, logits_at(k, i + n, v, some), base[i + n], &here[n], &top[n]);
        }
#pragma GCC unroll 4
    for (size_t n = 0; n < count; n++)
        sums[i + n] += (double)vector_sum(here[n]), most[i + n] = top[n];
}

/* Sums of e^(x - base) over the rows; top becomes their largest. */
static inline void sums_above(struct group k, const float *base, double *sums, float *top)
{
    size_t V = (size_t)k.a->V, count = k.kept ? GROUP : 1;
    vector most[PANEL];
    for (size_t i = 0; i < k.rows; i++) most[i] = vector_all(-INFINITY), sums[i] = 0;
    for (size_t v = 0; v < V; v += PIECE)
        for (size_t i = 0; i < k.rows; i += count)
            sum_piece(k, i, count, v, V - v < PIECE ? V : v + PIECE, base, sums, most);
    for (size_t i = 0; i < k.rows; i++) top[i] = vector_top(most[i]);
}

static inline void log_sums(struct group k, float *lse, float *top)
{
    size_t first = k.a->V < PIECE ? (size_t)k.a->V : PIECE;
    float base[PANEL];
    double sums[PANEL];
    bool again = false;
    for (size_t i = 0; i < k.rows; i++) base[i] = top_of(k, i, first);
    sums_above(k, base, sums, top);
    for (size_t i = 0; i < k.rows; i++)
        if (!(top[i] - base[i] <= MOST)) base[i] = top[i], again = true;
    if (again) sums_above(k, base, sums, top);
    for (size_t i = 0; i < k.rows; i++) lse[i] = base[i] + (float)log(sums[i]);
}

/* The first place where row i is x; 0 where it is nowhere. */
static int32_t place_of(struct group k, size_t i, float x)
{
    size_t V = (size_t)k.a->V;
    float here[PANEL];
    for (size_t v = 0; v < V; v += PANEL) {
        size_t n = V - v < PANEL ? V - v : PANEL, found = n;
        vector_load(k.logits, at_of(k, i, v), k.dtype, n, here);
        for (size_t j = n; j-- > 0;) found = here[j] == x ? j : found;
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

/* Elements [v, end) of rows [i, i + count) to their gradients. */
static inline void slope_piece(struct group k, size_t i, size_t count, size_t v, size_t end,
                               const struct shift *by)
{
    size_t V = (size_t)k.a->V;
    struct shift here[GROUP];
    for (size_t n = 0; n < count; n++) here[n] = by[i + n];
    for (; v + TOGETHER <= end; v += TOGETHER) {
        if (!k.kept) vector_ask(k.logits, (k.first + 1) * V + (V + v) / 2, k.dtype);
        for (size_t j = v; j < v + TOGETHER; j += 2 * LANES) {
            size_t at = at_of(k, i, j);
#pragma GCC unroll 4
            for (size_t n = 0; n < count; n++, at += PANEL) {
                struct vectors two = vector_get_two(k.logits, at, k.dtype);
                if (k.kept && at > AHEAD * PANEL) vector_ask(k.logits, at - AHEAD * PANEL, k.dtype);
                two.a = slope(k.dtype, two.a, here[n]), two.b = slope(k.dtype, two.b, here[n]);
                vector_set_two(k.logits, at, k.dtype, two);
            }
        }
    }
    for (; v < end; v += LANES)
        for (size_t n = 0; n < count; n++) {
            size_t some = end - v < LANES ? end - v : LANES, at = at_of(k, i + n, v);
            vector_set(k.logits, at, k.dtype, some,
                       slope(k.dtype, vector_get(k.logits, at, k.dtype, some), by[i + n]));
        }
}

/* Logits to their gradients, all but the labels'. */
static inline void slopes(struct group k, const struct shift *by)
{
    size_t V = (size_t)k.a->V;
    if (!k.kept) {
        slope_piece(k, 0, 1, 0, V, by);
        return;
    }
    for (size_t end = V, v; end > 0; end = v) {
        v = (end - 1) / PIECE * PIECE;
        for (size_t i = 0; i < k.rows; i += GROUP) slope_piece(k, i, GROUP, v, end, by);
    }
}

/* The label's logit, if it is here, else -inf. */
static inline float chosen_of(struct group k, size_t i, int32_t label)
{
    float x = -INFINITY;
    if (label_is_here(k.a, label))
        vector_load(k.logits, at_of(k, i, (size_t)(label - k.a->first)), k.dtype, 1, &x);
    return x;
}

static inline void gradients(struct group k, const struct cross_entropy_io *io, const float *lse)
{
    struct shift by[PANEL];
    float chosen[PANEL];
    const int32_t *labels = io->labels_N + k.first;
    for (size_t i = 0; i < k.rows; i++) {
        by[i] = (struct shift){lse[i], labels[i] == LABEL_IGNORED ? 0 : k.a->scale, 0};
        by[i].log2 = (float)(((double)lse[i] - log((double)by[i].scale)) * 1.4426950408889634);
        chosen[i] = chosen_of(k, i, labels[i]);
    }
    slopes(k, by);
    for (size_t i = 0; i < k.rows; i++) {
        if (!label_is_here(k.a, labels[i])) continue;
        size_t at = at_of(k, i, (size_t)(labels[i] - k.a->first));
        /* exact: the difference of two like numbers */
        float x = vector_exp(chosen[i] - lse[i]) * by[i].scale - by[i].scale;
        vector_store(k.logits, at, k.dtype, 1, &x);
    }
}

/* What is asked about row i. */
static inline void tell(struct group k, const struct cross_entropy_io *io, size_t i, float lse,
                        float top)
{
    const struct cross_entropy *a = k.a;
    size_t n = k.first + i;
    int32_t label = io->labels_N[n], best = 0;
    float chosen = chosen_of(k, i, label), *stats = io->stats_PN4;
    if (a->step == LOSS_STATS || io->best_N) best = a->first + place_of(k, i, top);
    if (a->step == LOSS_STATS) {
        stats += n * LOSS_STATS_COUNT;
        stats[STAT_LSE] = lse, stats[STAT_TOP] = top;
        stats[STAT_BEST] = (float)best, stats[STAT_CHOSEN] = chosen;
        return;
    }
    io->loss_N[n] = label == LABEL_IGNORED ? 0 : lse - chosen;
    if (io->best_N) io->best_N[n] = best;
}

/* A dtype and a count that the compiler knows make each loop one of its own. */
static inline void run(struct group k, const struct cross_entropy_io *io)
{
    float lse[PANEL], top[PANEL];
    if (k.a->step == LOSS_JOINED) {
        for (size_t i = 0; i < k.rows; i++) lse[i] = loss_join(k.a, io, k.first + i);
    } else {
        log_sums(k, lse, top);
        for (size_t i = 0; i < k.rows; i++) tell(k, io, i, lse[i], top[i]);
    }
    if (k.a->gradient && k.a->step != LOSS_STATS) gradients(k, io, lse);
}

enum status KERNEL(cross_entropy)(const struct cross_entropy *a, const struct cross_entropy_io *io,
                                  struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    bool kept = KERNEL(panels_keep)(a->is_private, a->dtype, a->N, a->V);
    size_t rows = kept ? PANEL : 1;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t n = 0; n < (size_t)a->N; n += rows)
        if (a->dtype == F32)
            run((struct group){a, F32, false, io->logits_NV, n, 1}, io);
        else if (kept)
            run((struct group){a, BF16, true, io->logits_NV, n, PANEL}, io);
        else
            run((struct group){a, BF16, false, io->logits_NV, n, 1}, io);
    return STATUS_OK;
}
