/* update.c (cpu) -- one pass over flat ranges, bound by memory. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/update.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>

enum { BLOCK = 4096 }; /* elements of one partial sum, and of one piece of work */

static size_t blocks_of(size_t n) { return n / BLOCK + (n % BLOCK != 0); }
static size_t block_size(size_t n, size_t begin) { return n - begin < BLOCK ? n - begin : BLOCK; }

enum status KERNEL(sum_squares)(const struct sum_squares *a, const struct sum_squares_io *io,
                                struct queue *on)
{
    size_t blocks = blocks_of(a->n), mark = arena_mark(&on->scratch);
    double *parts = arena_take(&on->scratch, blocks, sizeof *parts), total = 0;
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t block = 0; block < blocks; block++) {
        const float *x = io->x_n + block * BLOCK;
        size_t n = block_size(a->n, block * BLOCK);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
        parts[block] = sum;
    }
    for (size_t block = 0; block < blocks; block++) total += parts[block];
    *io->sum = total;
    return STATUS_OK;
}

enum status KERNEL(adamw)(const struct adamw *a, const struct adamw_io *io, struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    double correct1 = 1 - pow(a->beta1, (double)a->step);
    double correct2 = 1 - pow(a->beta2, (double)a->step);
    const float keep = (float)(1 - a->lr * a->decay), rate = (float)(a->lr / correct1);
    const float root = (float)(1 / sqrt(correct2)), eps = (float)a->eps, scale = (float)a->scale;
    const float beta1 = (float)a->beta1, beta2 = (float)a->beta2;
    const float new1 = (float)(1 - a->beta1), new2 = (float)(1 - a->beta2);
    size_t blocks = blocks_of(a->n);
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t block = 0; block < blocks; block++) {
        size_t begin = block * BLOCK, n = block_size(a->n, begin);
        float *restrict w = io->w_n + begin, *restrict m = io->m_n + begin;
        float *restrict v = io->v_n + begin;
        const float *restrict grad = io->g_n + begin;
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            float g = grad[i] * scale;
            m[i] = beta1 * m[i] + new1 * g;
            v[i] = beta2 * v[i] + new2 * g * g;
            w[i] = w[i] * keep - rate * m[i] / (sqrtf(v[i]) * root + eps);
        }
        if (io->copy_n) vector_store(io->copy_n, begin, a->copy_dtype, n, w);
    }
    return STATUS_OK;
}

enum status KERNEL(cast)(const struct cast *a, const struct cast_io *io, struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    size_t blocks = blocks_of(a->n), rows = a->rows ? a->rows : 1;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t block = 0; block < rows * blocks; block++) {
        size_t row = block / blocks, begin = block % blocks * BLOCK, n = block_size(a->n, begin);
        size_t from = row * a->from_stride + begin, to = row * a->to_stride + begin;
        float x[BLOCK], old[BLOCK];
        vector_load(io->x_n, from, a->from, n, x);
        if (a->accumulate) {
            vector_load(io->y_n, to, a->to, n, old);
            for (size_t i = 0; i < n; i++) x[i] += old[i];
        }
        vector_store(io->y_n, to, a->to, n, x);
    }
    return STATUS_OK;
}
