/* cast.cu -- each thread converts eight elements; a block stays within one row. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/update.h"
}

enum { THREADS = 256 };

template <int WIDTH, typename From, typename To>
static __device__ __forceinline__ void convert(const struct cast &a, const From *x, To *y)
{
    float value[WIDTH], old[WIDTH];
    load<WIDTH>(x, value);
    for (int k = 0; k < WIDTH; k++) value[k] *= a.scale;
    if (a.accumulate) {
        load<WIDTH>(y, old);
        for (int k = 0; k < WIDTH; k++) value[k] += old[k];
    }
    store<WIDTH>(value, y);
}

template <typename From, typename To, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    cast_kernel(struct cast a, unsigned blocks_per_row, const From *x_n, To *y_n)
{
    size_t row = blockIdx.x / blocks_per_row, block = blockIdx.x % blocks_per_row;
    size_t at = (block * THREADS + threadIdx.x) * WIDTH;
    if (at >= a.n) return;
    const From *x = x_n + row * a.from_stride + at;
    To *y = y_n + row * a.to_stride + at;
    if (at + WIDTH <= a.n) {
        convert<WIDTH>(a, x, y);
    } else {
        for (size_t i = 0; at + i < a.n; i++) convert<1>(a, x + i, y + i);
    }
}

template <typename From, typename To, int WIDTH>
static enum status launch(const struct cast *a, const struct cast_io *io, struct queue *queue)
{
    size_t rows = a->rows ? a->rows : 1, blocks;
    size_t row_blocks = ceil_div(a->n, (size_t)THREADS * WIDTH);
    if (!row_blocks) return STATUS_OK;
    if (__builtin_mul_overflow(row_blocks, rows, &blocks) || blocks > INT32_MAX)
        FAIL(UNSUPPORTED, "cast: %zu rows of %zu exceed the maximum grid size", rows, a->n);
    struct cast op = *a;
    op.scale = cast_scale(a); /* the kernel cannot call a function of the host */
    LAUNCH((cast_kernel<From, To, WIDTH>), (unsigned)blocks, THREADS, 0, queue, op,
           (unsigned)row_blocks, (const From *)io->x_n, (To *)io->y_n);
    return STATUS_OK;
}

template <typename From, typename To>
static enum status launch_by_alignment(const struct cast *a, const struct cast_io *io,
                                       struct queue *queue)
{
    bool rows = a->rows > 1;
    bool aligned = is_aligned(io->x_n) && is_aligned(io->y_n) &&
                   (!rows || (rows_are_aligned(a->from_stride, a->from) &&
                              rows_are_aligned(a->to_stride, a->to)));
    return aligned ? launch<From, To, 8>(a, io, queue) : launch<From, To, 1>(a, io, queue);
}

extern "C" enum status GPU_NAME(cast)(const struct cast *a, const struct cast_io *io,
                                      struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    if (a->from == F32)
        return a->to == F32 ? launch_by_alignment<float, float>(a, io, queue)
                            : launch_by_alignment<float, bf16>(a, io, queue);
    return a->to == F32 ? launch_by_alignment<bf16, float>(a, io, queue)
                        : launch_by_alignment<bf16, bf16>(a, io, queue);
}
