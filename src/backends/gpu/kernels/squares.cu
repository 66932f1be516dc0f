/* squares.cu -- sums of squares, and division by a norm; memory-bound.
 *
 * Order     In f64: each thread its own elements, then lanes, then warps of a block; then the
 *           blocks in the same way. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/elements.h"

extern "C" {
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/queue.h"
}

#include <math.h>
#include <string.h>

enum { WIDE = 4, STEPS = 16, PART = STEPS * BLOCK * WIDE }; /* PART: elements per block */

/* Of elements that are aligned to 16 bytes in f32, to 8 in bf16. */
static __device__ __forceinline__ void load_four(const float *x, float (&to)[WIDE])
{
    load<WIDE>(x, to);
}
static __device__ __forceinline__ void load_four(const bf16 *x, float (&to)[WIDE])
{
    uint2 bits = *(const uint2 *)x;
    bf16 part[WIDE];
    memcpy(part, &bits, sizeof bits);
    for (int i = 0; i < WIDE; i++) to[i] = to_f32(part[i]);
}

/* `blocks` consecutive thread blocks compute each sum.  The mapping of elements to threads does not
 * depend on the alignment. */
template <bool ALIGNED, typename T>
__global__ static void __launch_bounds__(BLOCK)
    sum_squares_kernel(size_t n, unsigned blocks, const T *x_Sn, double *partials)
{
    const size_t begin = (size_t)(blockIdx.x % blocks) * PART + threadIdx.x * WIDE;
    const T *x = x_Sn + blockIdx.x / blocks * n;
    double sum = 0;
    for (int step = 0; step < STEPS; step++) {
        const size_t at = begin + (size_t)step * BLOCK * WIDE;
        float values[WIDE] = {};
        if (ALIGNED && at + WIDE <= n)
            load_four(x + at, values);
        else
            for (int i = 0; i < WIDE; i++)
                if (at + i < n) values[i] = to_f32(x[at + i]);
        for (int i = 0; i < WIDE; i++) sum += (double)values[i] * (double)values[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/* A block per sum, of n partials. */
__global__ static void __launch_bounds__(MAX_BLOCK_SIZE)
    sum_partials_kernel(size_t n, const double *partials_Sn, double *sum_S)
{
    const double *partials = partials_Sn + blockIdx.x * n;
    double sum = 0;
    for (size_t i = threadIdx.x; i < n; i += MAX_BLOCK_SIZE) sum += partials[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) sum_S[blockIdx.x] = sum;
}

template <typename T>
static enum status launch_sum_squares(const struct sum_squares *a, const T *x, double *partials,
                                      struct queue *queue)
{
    const unsigned blocks = (unsigned)ceil_div(a->n, PART);
    const unsigned grid = blocks * (unsigned)sum_squares_count(a);
    if (is_aligned(x) && (sum_squares_count(a) == 1 || a->n % WIDE == 0))
        LAUNCH((sum_squares_kernel<true, T>), grid, BLOCK, 0, queue, a->n, blocks, x, partials);
    else
        LAUNCH((sum_squares_kernel<false, T>), grid, BLOCK, 0, queue, a->n, blocks, x, partials);
    return STATUS_OK;
}

/* Sums that a queue's later kernels can read, in *totals. */
static enum status add_squares(const struct sum_squares *a, const void *x, double **totals,
                               struct queue *queue)
{
    size_t sums = sum_squares_count(a), blocks = ceil_div(a->n, PART);
    size_t mark = arena_mark(&queue->scratch);
    double *partials = (double *)arena_alloc(&queue->scratch, sums * blocks, sizeof *partials);
    *totals = partials;
    if (blocks > 1) *totals = (double *)arena_alloc(&queue->scratch, sums, sizeof **totals);
    arena_reset(&queue->scratch, mark);
    if (queue->sizing || !a->n) return STATUS_OK;
    if (a->dtype == F32)
        TRY(launch_sum_squares(a, (const float *)x, partials, queue));
    else
        TRY(launch_sum_squares(a, (const bf16 *)x, partials, queue));
    if (blocks > 1)
        LAUNCH(sum_partials_kernel, (unsigned)sums, MAX_BLOCK_SIZE, 0, queue, blocks, partials,
               *totals);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(sum_squares)(const struct sum_squares *a,
                                             const struct sum_squares_io *io, struct queue *queue)
{
    size_t bytes = sum_squares_count(a) * sizeof *io->sum_S;
    double *totals;
    TRY(add_squares(a, io->x_Sn, &totals, queue));
    if (queue->sizing) return STATUS_OK;
    if (a->n) return queue_copy(queue, io->sum_S, totals, bytes);
    memset(io->sum_S, 0, bytes);
    return STATUS_OK;
}

template <int WIDTH, typename T>
__global__ static void __launch_bounds__(BLOCK)
    divide_by_norm_kernel(size_t n, double min_norm, const double *squares, const float *x_n,
                          T *y_n)
{
    __shared__ float shared;
    if (threadIdx.x == 0) shared = (float)(1 / fmax(sqrt(*squares), min_norm));
    __syncthreads();
    const float factor = shared;
    for_elements<WIDTH>(n, [&](auto vector, size_t at) {
        enum { COUNT = decltype(vector)::value };
        float x[COUNT];
        load<COUNT>(x_n + at, x);
        for (int i = 0; i < COUNT; i++) x[i] *= factor;
        store<COUNT>(x, y_n + at);
    });
}

template <typename T>
static enum status launch_divide_by_norm(const struct divide_by_norm *a, const double *squares,
                                         const float *x, T *y, struct queue *queue)
{
    enum { WIDTH = sizeof(T) < 4 ? 8 : 4 };
    if (is_aligned(x) && is_aligned(y))
        LAUNCH((divide_by_norm_kernel<WIDTH, T>), element_blocks(a->n, WIDTH), BLOCK, 0, queue,
               a->n, a->min_norm, squares, x, y);
    else
        LAUNCH((divide_by_norm_kernel<1, T>), element_blocks(a->n, 1), BLOCK, 0, queue, a->n,
               a->min_norm, squares, x, y);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(divide_by_norm)(const struct divide_by_norm *a,
                                                const struct divide_by_norm_io *io,
                                                struct queue *queue)
{
    struct sum_squares all = {};
    double *squares;
    all.n = a->n;
    TRY(add_squares(&all, io->x_n, &squares, queue));
    if (queue->sizing || !a->n) return STATUS_OK;
    return a->to == F32 ? launch_divide_by_norm(a, squares, io->x_n, (float *)io->y_n, queue)
                        : launch_divide_by_norm(a, squares, io->x_n, (bf16 *)io->y_n, queue);
}
