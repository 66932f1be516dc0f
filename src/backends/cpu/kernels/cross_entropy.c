/* cross_entropy.c (cpu) -- three passes over a row: its top, the sum of exponentials, the gradient.
 * Pieces of a row are converted to f32 on the stack, so a row is never copied whole. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>

enum { PIECE = 512 };

static size_t piece_of(size_t V, size_t v) { return V - v < PIECE ? V - v : PIECE; }

/* The largest logit and the first place it stands at. */
static float top_of(const struct cross_entropy *a, const void *logits, size_t row, int32_t *best)
{
    size_t V = (size_t)a->V;
    float top = -INFINITY, x[PIECE];
    *best = 0;
    for (size_t v = 0; v < V; v += PIECE) {
        size_t n = piece_of(V, v);
        float here = -INFINITY;
        vector_load(logits, row + v, a->dtype, n, x);
#pragma omp simd reduction(max : here)
        for (size_t i = 0; i < n; i++) here = x[i] > here ? x[i] : here;
        if (!(here > top)) continue;
        top = here;
        for (size_t i = 0; i < n; i++)
            if (x[i] == top) {
                *best = (int32_t)(v + i);
                break;
            }
    }
    return top;
}

static inline float log_sum(const struct cross_entropy *a, enum dtype dtype, const void *logits,
                            size_t row, float top)
{
    size_t V = (size_t)a->V;
    float x[PIECE];
    double sum = 0;
    for (size_t v = 0; v < V; v += PIECE) {
        size_t n = piece_of(V, v);
        float here = 0;
        vector_load(logits, row + v, dtype, n, x);
#pragma omp simd reduction(+ : here)
        for (size_t i = 0; i < n; i++) here += vector_exp_for(dtype, x[i] - top);
        sum += (double)here;
    }
    return top + (float)log(sum);
}

static inline void gradient(const struct cross_entropy *a, enum dtype dtype, void *logits,
                            size_t row, float lse, int32_t label)
{
    size_t V = (size_t)a->V, here = (size_t)(label - a->first);
    float x[PIECE], scale = label == LABEL_IGNORED ? 0 : a->scale;
    for (size_t v = 0; v < V; v += PIECE) {
        size_t n = piece_of(V, v);
        vector_load(logits, row + v, dtype, n, x);
        for (size_t i = 0; i < n; i++) x[i] = vector_exp_for(dtype, x[i] - lse) * scale;
        if (label_is_here(a, label) && here >= v && here < v + n) x[here - v] -= scale;
        vector_store(logits, row + v, dtype, n, x);
    }
}

/* One row; a dtype that the compiler knows makes each loop one of its own. */
static inline void row_of(const struct cross_entropy *a, enum dtype dtype,
                          const struct cross_entropy_io *io, size_t n)
{
    size_t row = n * (size_t)a->V;
    int32_t label = io->labels_N[n], best = 0;
    float lse, chosen = -INFINITY;
    if (a->step == LOSS_JOINED) {
        lse = loss_join(a, io, n);
    } else {
        float top = top_of(a, io->logits_NV, row, &best), *stats = io->stats_PN4;
        best += a->first;
        lse = log_sum(a, dtype, io->logits_NV, row, top);
        if (label_is_here(a, label))
            vector_load(io->logits_NV, row + (size_t)(label - a->first), dtype, 1, &chosen);
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
