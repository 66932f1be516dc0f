// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_decode.h"

#include "backends/cpu/kernels/attention_mask.h"
#include "backends/cpu/kernels/vector.h"

#include <math.h>
#include <omp.h>

/* One thread's buffers, for the queries of all heads that share one key/value head. */
struct decode_buffers {
    float *queries, *out; /* [heads * T][K] */
    float *row;           /* [K]: the current key or value */
    float *scores;        /* [heads * T][S] */
};

static size_t num_queries(const struct attention *a) { return (size_t)(a->H / a->G * a->T); }

static size_t floats_per_thread(const struct attention *a)
{
    return num_queries(a) * (2 * (size_t)a->K + (size_t)a->S) + (size_t)a->K;
}

static struct decode_buffers buffers_at(const struct attention *a, float *at)
{
    size_t all = num_queries(a) * (size_t)a->K;
    return (struct decode_buffers){at, at + all, at + 2 * all, at + 2 * all + (size_t)a->K};
}

static float dot(const float *x, const float *y, size_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Softmax over S scores in place, with 0 for masked keys; returns the log-sum-exp. */
static float softmax_row(float *scores, size_t S, struct key_range range)
{
    size_t begin = (size_t)range.begin, end = (size_t)range.end;
    float row_max = -INFINITY, sum = 0;
#pragma omp simd reduction(max : row_max)
    for (size_t i = begin; i < end; i++) row_max = scores[i] > row_max ? scores[i] : row_max;
#pragma omp simd reduction(+ : sum)
    for (size_t i = begin; i < end; i++) sum += scores[i] = vector_exp(scores[i] - row_max);
    float inverse = 1 / sum;
    for (size_t i = begin; i < end; i++) scores[i] *= inverse;
    memset(scores, 0, begin * sizeof *scores);
    memset(scores + end, 0, (S - end) * sizeof *scores);
    return row_max + logf(sum);
}

static void decode_head(const struct attention *a, const struct attention_fwd *io,
                        struct decode_buffers buf, size_t b, size_t g)
{
    size_t K = (size_t)a->K, S = (size_t)a->S, T = (size_t)a->T, heads = (size_t)(a->H / a->G);
    size_t keys = b * S * a->kv_stride + g * K;
    const struct mask_source bounds = {a, io->start_BT, io->end_BT};
    for (size_t t = 0; t < T; t++)
        for (size_t e = 0; e < heads; e++)
            vector_load(io->q_BTHK, (b * T + t) * a->q_stride + (g * heads + e) * K, a->dtype, K,
                        buf.queries + (t * heads + e) * K);
    for (size_t s = 0; s < S; s++) {
        vector_load(io->k_BSGK, keys + s * a->kv_stride, a->dtype, K, buf.row);
        for (size_t n = 0; n < heads * T; n++)
            buf.scores[n * S + s] = a->scale * dot(buf.queries + n * K, buf.row, K);
    }
    for (size_t n = 0; n < heads * T; n++) {
        size_t h = g * heads + n % heads, t = n / heads;
        io->lse_BHT[(b * (size_t)a->H + h) * T + t] =
            softmax_row(buf.scores + n * S, S, visible_keys(&bounds, b, t));
    }
    memset(buf.out, 0, heads * T * K * sizeof *buf.out);
    for (size_t s = 0; s < S; s++) {
        vector_load(io->v_BSGK, keys + s * a->kv_stride, a->dtype, K, buf.row);
        for (size_t n = 0; n < heads * T; n++) {
            float prob = buf.scores[n * S + s];
            for (size_t k = 0; k < K; k++) buf.out[n * K + k] += prob * buf.row[k];
        }
    }
    for (size_t t = 0; t < T; t++)
        vector_store(io->out_BTHK, ((b * T + t) * (size_t)a->H + g * heads) * K, a->dtype,
                     heads * K, buf.out + t * heads * K);
}

enum status KERNEL(attention_decode)(const struct attention *a, const struct attention_fwd *io,
                                     struct queue *queue)
{
    size_t per_thread = floats_per_thread(a), mark = arena_mark(&queue->scratch);
    float *buffers =
        arena_alloc(&queue->scratch, (size_t)queue->num_threads * per_thread, sizeof *buffers);
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
    long tasks = (long)a->B * a->G;
#pragma omp parallel for schedule(dynamic) num_threads(queue->num_threads)
    for (long task = 0; task < tasks; task++)
        decode_head(a, io, buffers_at(a, buffers + (size_t)omp_get_thread_num() * per_thread),
                    (size_t)(task / a->G), (size_t)(task % a->G));
    return STATUS_OK;
}
