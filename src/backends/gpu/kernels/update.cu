/* update.cu -- flat ranges, bound by memory: every number is read and written once.
 *
 * Order     sum_squares adds a block's elements in f64: each thread its own, then lanes, then
 *           waves; then the blocks likewise. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/update.h"
#include "tensor/device.h"
}

#include <math.h>

enum { BLOCK = 256 };
static const unsigned grid_most = 4096;
enum { WIDE = 4, STEPS = 16, PART = STEPS * BLOCK * WIDE }; /* elements of one partial sum */

/* Elements lie at the same threads whether they are loaded one by one or not. */
template <bool ALIGNED>
__global__ static void __launch_bounds__(BLOCK) squares(size_t n, const float *x, double *parts)
{
    const size_t begin = (size_t)blockIdx.x * PART + threadIdx.x * WIDE;
    double sum = 0;
    for (int step = 0; step < STEPS; step++) {
        const size_t at = begin + (size_t)step * BLOCK * WIDE;
        float four[WIDE] = {};
        if (ALIGNED && at + WIDE <= n)
            load<WIDE>(x + at, four);
        else
            for (int i = 0; i < WIDE; i++)
                if (at + i < n) four[i] = x[at + i];
        for (int i = 0; i < WIDE; i++) sum += (double)four[i] * (double)four[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ static void __launch_bounds__(BLOCK_MOST) sum_parts(size_t n, double *parts)
{
    double sum = 0;
    for (size_t i = threadIdx.x; i < n; i += BLOCK_MOST) sum += parts[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[0] = sum;
}

extern "C" enum status GPU_NAME(sum_squares)(const struct sum_squares *a,
                                             const struct sum_squares_io *io, struct queue *on)
{
    size_t blocks = ceil_div(a->n, PART), mark = arena_mark(&on->scratch);
    double *parts = (double *)arena_take(&on->scratch, blocks, sizeof *parts);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    if (!a->n) {
        *io->sum = 0;
        return STATUS_OK;
    }
    if (is_aligned(io->x_n))
        LAUNCH(squares<true>, (unsigned)blocks, BLOCK, 0, on, a->n, io->x_n, parts);
    else
        LAUNCH(squares<false>, (unsigned)blocks, BLOCK, 0, on, a->n, io->x_n, parts);
    if (blocks > 1) LAUNCH(sum_parts, 1, BLOCK_MOST, 0, on, blocks, parts);
    return queue_copy(on, io->sum, parts, sizeof *parts);
}

struct rates {
    float keep, rate, root, eps, scale, beta1, beta2, new1, new2;
};

template <int WIDTH, typename T>
__device__ static void adamw_at(const struct rates &r, size_t at, float *w_n, float *m_n,
                                float *v_n, const float *g_n, T *copy_n)
{
    float w[WIDTH], m[WIDTH], v[WIDTH], grad[WIDTH];
    load<WIDTH>(w_n + at, w), load<WIDTH>(m_n + at, m);
    load<WIDTH>(v_n + at, v), load<WIDTH>(g_n + at, grad);
    for (int i = 0; i < WIDTH; i++) {
        float g = grad[i] * r.scale;
        m[i] = r.beta1 * m[i] + r.new1 * g;
        v[i] = r.beta2 * v[i] + r.new2 * g * g;
        w[i] = w[i] * r.keep - r.rate * m[i] / (sqrtf(v[i]) * r.root + r.eps);
    }
    store<WIDTH>(w, w_n + at), store<WIDTH>(m, m_n + at), store<WIDTH>(v, v_n + at);
    if (copy_n) store<WIDTH>(w, copy_n + at);
}

template <int WIDTH, typename T>
__global__ static void __launch_bounds__(BLOCK)
    adamw_kernel(struct rates r, size_t n, float *w, float *m, float *v, const float *g, T *copy)
{
    const size_t threads = (size_t)gridDim.x * BLOCK, vectors = n / WIDTH;
    const size_t first = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    for (size_t i = first; i < vectors; i += threads)
        adamw_at<WIDTH>(r, i * WIDTH, w, m, v, g, copy);
    for (size_t i = vectors * WIDTH + first; i < n; i += threads)
        adamw_at<1>(r, i, w, m, v, g, copy);
}

template <typename T>
static enum status adamw_by(struct rates r, const struct adamw *a, const struct adamw_io *io,
                            struct queue *on)
{
    enum { WIDTH = 16 / sizeof(T) };
    T *copy = (T *)io->copy_n;
    bool wide = is_aligned(io->w_n) && is_aligned(io->m_n) && is_aligned(io->v_n) &&
                is_aligned(io->g_n) && is_aligned(copy);
    size_t blocks = ceil_div(a->n, (size_t)BLOCK * (wide ? (size_t)WIDTH : 1));
    unsigned grid = blocks < grid_most ? (unsigned)blocks : grid_most;
    if (wide)
        LAUNCH((adamw_kernel<WIDTH, T>), grid, BLOCK, 0, on, r, a->n, io->w_n, io->m_n, io->v_n,
               io->g_n, copy);
    else
        LAUNCH((adamw_kernel<1, T>), grid, BLOCK, 0, on, r, a->n, io->w_n, io->m_n, io->v_n,
               io->g_n, copy);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(adamw)(const struct adamw *a, const struct adamw_io *io,
                                       struct queue *on)
{
    if (on->measuring || !a->n) return STATUS_OK;
    double correct1 = 1 - pow(a->beta1, (double)a->step);
    double correct2 = 1 - pow(a->beta2, (double)a->step);
    struct rates r = {};
    r.keep = (float)(1 - a->lr * a->decay), r.rate = (float)(a->lr / correct1);
    r.root = (float)(1 / sqrt(correct2)), r.eps = (float)a->eps, r.scale = (float)a->scale;
    r.beta1 = (float)a->beta1, r.beta2 = (float)a->beta2;
    r.new1 = (float)(1 - a->beta1), r.new2 = (float)(1 - a->beta2);
    return a->copy_dtype == F32 ? adamw_by<float>(r, a, io, on) : adamw_by<bf16>(r, a, io, on);
}
