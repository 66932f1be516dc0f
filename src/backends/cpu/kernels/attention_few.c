// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_few.h"

#include "backends/cpu/kernels/vector.h"

#include <math.h>
#include <omp.h>

/* One thread's buffers, for the queries of all heads that read one key/value head. */
struct few {
    float *queries, *out; /* [heads * T][K] */
    float *row;           /* [K]: the key or value at hand */
    float *scores;        /* [heads * T][S] */
};

static size_t queries_of(const struct attention *a) { return (size_t)(a->H / a->G * a->T); }

static size_t few_floats(const struct attention *a)
{
    return queries_of(a) * (2 * (size_t)a->K + (size_t)a->S) + (size_t)a->K;
}

static struct few few_at(const struct attention *a, float *at)
{
    size_t all = queries_of(a) * (size_t)a->K;
    return (struct few){at, at + all, at + 2 * all, at + 2 * all + (size_t)a->K};
}

static float dot(const float *x, const float *y, size_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Scores of S keys to odds, in place: 0 for those that are not seen; returns log-sum-exp. */
static float soften(float *scores, size_t S, struct key_range seen)
{
    size_t begin = (size_t)seen.begin, end = (size_t)seen.end;
    float top = -INFINITY, sum = 0;
#pragma omp simd reduction(max : top)
    for (size_t i = begin; i < end; i++) top = scores[i] > top ? scores[i] : top;
#pragma omp simd reduction(+ : sum)
    for (size_t i = begin; i < end; i++) sum += scores[i] = vector_exp(scores[i] - top);
    float inverse = 1 / sum;
    for (size_t i = begin; i < end; i++) scores[i] *= inverse;
    memset(scores, 0, begin * sizeof *scores);
    memset(scores + end, 0, (S - end) * sizeof *scores);
    return top + logf(sum);
}

static void attend_head(const struct attention *a, const struct attention_fwd *io, struct few f,
                        size_t b, size_t g)
{
    size_t K = (size_t)a->K, S = (size_t)a->S, T = (size_t)a->T, E = (size_t)(a->H / a->G);
    size_t keys = b * S * a->kv_stride + g * K;
    for (size_t t = 0; t < T; t++)
        for (size_t e = 0; e < E; e++)
            vector_load(io->q_BTHK, (b * T + t) * a->q_stride + (g * E + e) * K, a->dtype, K,
                        f.queries + (t * E + e) * K);
    for (size_t s = 0; s < S; s++) {
        vector_load(io->k_BSGK, keys + s * a->kv_stride, a->dtype, K, f.row);
        for (size_t n = 0; n < E * T; n++)
            f.scores[n * S + s] = a->scale * dot(f.queries + n * K, f.row, K);
    }
    for (size_t n = 0; n < E * T; n++) {
        size_t h = g * E + n % E, t = n / E;
        io->lse_BHT[(b * (size_t)a->H + h) * T + t] =
            soften(f.scores + n * S, S, keys_seen(a, io->start_BT, io->end_BT, b, t));
    }
    memset(f.out, 0, E * T * K * sizeof *f.out);
    for (size_t s = 0; s < S; s++) {
        vector_load(io->v_BSGK, keys + s * a->kv_stride, a->dtype, K, f.row);
        for (size_t n = 0; n < E * T; n++) {
            float odds = f.scores[n * S + s];
            for (size_t k = 0; k < K; k++) f.out[n * K + k] += odds * f.row[k];
        }
    }
    for (size_t t = 0; t < T; t++)
        vector_store(io->out_BTHK, ((b * T + t) * (size_t)a->H + g * E) * K, a->dtype, E * K,
                     f.out + t * E * K);
}

enum status KERNEL(attention_few)(const struct attention *a, const struct attention_fwd *io,
                                  struct queue *on)
{
    size_t each = few_floats(a), mark = arena_mark(&on->scratch);
    float *buffers = arena_take(&on->scratch, (size_t)on->num_threads * each, sizeof *buffers);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    long tasks = (long)a->B * a->G;
#pragma omp parallel for schedule(dynamic) num_threads(on->num_threads)
    for (long task = 0; task < tasks; task++)
        attend_head(a, io, few_at(a, buffers + (size_t)omp_get_thread_num() * each),
                    (size_t)(task / a->G), (size_t)(task % a->G));
    return STATUS_OK;
}
