/* Eight numbers a thread; a block lies within a row. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/update.h"
}

enum { THREADS = 256 };

template <int WIDTH, typename From, typename To>
static __device__ __forceinline__ void move(bool accumulate, const From *x, To *y)
{
    float value[WIDTH], old[WIDTH];
    load<WIDTH>(x, value);
    if (accumulate) {
        load<WIDTH>(y, old);
        for (int k = 0; k < WIDTH; k++) value[k] += old[k];
    }
    store<WIDTH>(value, y);
}

template <typename From, typename To, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    copy(struct cast a, unsigned blocks_of_row, const From *x_n, To *y_n)
{
    size_t row = blockIdx.x / blocks_of_row, block = blockIdx.x % blocks_of_row;
    size_t at = (block * THREADS + threadIdx.x) * WIDTH;
    if (at >= a.n) return;
    const From *x = x_n + row * a.from_stride + at;
    To *y = y_n + row * a.to_stride + at;
    if (at + WIDTH <= a.n) {
        move<WIDTH>(a.accumulate, x, y);
    } else {
        for (size_t i = 0; at + i < a.n; i++) move<1>(a.accumulate, x + i, y + i);
    }
}

template <typename From, typename To, int WIDTH>
static enum status run_wide(const struct cast *a, const struct cast_io *io, struct queue *on)
{
    size_t rows = a->rows ? a->rows : 1, each = ceil_div(a->n, (size_t)THREADS * WIDTH), blocks;
    if (!each) return STATUS_OK;
    if (__builtin_mul_overflow(each, rows, &blocks) || blocks > INT32_MAX)
        FAIL(UNSUPPORTED, "cast: %zu rows of %zu are more than a GPU takes at once", rows, a->n);
    LAUNCH((copy<From, To, WIDTH>), (unsigned)blocks, THREADS, 0, on, *a, (unsigned)each,
           (const From *)io->x_n, (To *)io->y_n);
    return STATUS_OK;
}

template <typename From, typename To>
static enum status run(const struct cast *a, const struct cast_io *io, struct queue *on)
{
    bool rows = a->rows > 1;
    bool aligned = is_aligned(io->x_n) && is_aligned(io->y_n) &&
                   (!rows || (rows_are_aligned(a->from_stride, a->from) &&
                              rows_are_aligned(a->to_stride, a->to)));
    return aligned ? run_wide<From, To, 8>(a, io, on) : run_wide<From, To, 1>(a, io, on);
}

extern "C" enum status GPU_NAME(cast)(const struct cast *a, const struct cast_io *io,
                                      struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    if (a->from == F32)
        return a->to == F32 ? run<float, float>(a, io, on) : run<float, bf16>(a, io, on);
    return a->to == F32 ? run<bf16, float>(a, io, on) : run<bf16, bf16>(a, io, on);
}
