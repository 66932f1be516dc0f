/* bias.cu -- forward: a thread per vector of the rows.  Backward: a thread owns WIDTH columns of a
 * group of rows (row_groups.h). */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/row_groups.h"

extern "C" {
#include "ops/bias.h"
}

enum { THREADS = 256 };

template <typename T, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    bias_forward_kernel(unsigned blocks_per_row, int F, const T *b_F, T *y_NF)
{
    const int f = (int)(blockIdx.x % blocks_per_row * THREADS + threadIdx.x) * WIDTH;
    if (f >= F) return;
    T *y = y_NF + (size_t)(blockIdx.x / blocks_per_row) * F + f;
    float sum[WIDTH], b[WIDTH];
    load<WIDTH>(y, sum);
    load<WIDTH>(b_F + f, b);
    for (int k = 0; k < WIDTH; k++) sum[k] += b[k];
    store<WIDTH>(sum, y);
}

template <typename T, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    bias_backward_kernel(struct bias a, unsigned blocks_per_row, int rows, const T *dy_NF,
                         float *partial_GF)
{
    const int f = (int)(blockIdx.x % blocks_per_row * THREADS + threadIdx.x) * WIDTH;
    const size_t group = blockIdx.x / blocks_per_row, F = (size_t)a.F;
    const size_t begin = group * rows, end = min(begin + rows, (size_t)a.N);
    if (f >= a.F) return;
    float sum[WIDTH] = {};
#pragma unroll 4
    for (size_t n = begin; n < end; n++) {
        float dy[WIDTH];
        load<WIDTH>(dy_NF + n * F + f, dy);
        for (int k = 0; k < WIDTH; k++) sum[k] += dy[k];
    }
    store<WIDTH>(sum, partial_GF + group * F + f);
}

/* *blocks: of `rows` rows. */
static enum status make_grid(const struct bias *a, size_t rows, size_t per_row, unsigned *blocks)
{
    if (per_row * rows > INT32_MAX)
        FAIL(UNSUPPORTED, "bias: %d rows of %d exceed the maximum grid size", a->N, a->F);
    *blocks = (unsigned)(per_row * rows);
    return STATUS_OK;
}

template <typename T, int WIDTH>
static enum status launch_forward(const struct bias *a, const struct bias_fwd *io,
                                  struct queue *queue)
{
    size_t per_row = ceil_div((size_t)a->F, (size_t)THREADS * WIDTH);
    unsigned blocks = 0;
    TRY(make_grid(a, (size_t)a->N, per_row, &blocks));
    LAUNCH((bias_forward_kernel<T, WIDTH>), blocks, THREADS, 0, queue, (unsigned)per_row, a->F,
           (const T *)io->b_F, (T *)io->y_NF);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(bias_forward)(const struct bias *a, const struct bias_fwd *io,
                                              struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    bool aligned =
        rows_are_aligned((size_t)a->F, a->dtype) && is_aligned(io->b_F) && is_aligned(io->y_NF);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, launch_forward, a, io, queue);
}

template <typename T, int WIDTH>
static enum status launch_backward(const struct bias *a, const struct bias_bwd *io,
                                   const struct row_groups *g, struct queue *queue)
{
    size_t per_row = ceil_div((size_t)a->F, (size_t)THREADS * WIDTH);
    unsigned blocks = 0;
    TRY(make_grid(a, (size_t)g->groups, per_row, &blocks));
    LAUNCH((bias_backward_kernel<T, WIDTH>), blocks, THREADS, 0, queue, *a, (unsigned)per_row,
           g->rows, (const T *)io->dy_NF, g->partial_GD);
    TRY(add_row_groups(g, a->F, io->db_F, queue));
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(bias_backward)(const struct bias *a, const struct bias_bwd *io,
                                               struct queue *queue)
{
    struct row_groups g = row_groups_of((size_t)a->N, (size_t)a->F, queue);
    if (queue->sizing) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->F, a->dtype) && is_aligned(io->dy_NF);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, launch_backward, a, io, &g, queue);
}
