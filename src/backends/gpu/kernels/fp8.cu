/* fp8.cu -- quantization to FP8 in both storage orders: each block reads a square of x once, writes
 * its rows, transposes it in shared memory and writes its columns, all with 16-byte accesses. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/fp8.h"

extern "C" {
#include "backends/gpu/fp8.h"
#include "ops/float8.h"
}

enum { SIDE = 64, VECTOR = 16, THREADS = SIDE * SIDE / VECTOR, STRIDE = SIDE + 4 };

struct fp8_vector {
    uint8_t x[VECTOR];
};

/* Stores the first `count` bytes; as one vector if `aligned` and whole. */
static __device__ __forceinline__ void store_vector(const struct fp8_vector &from, uint8_t *to,
                                                    int count, bool aligned)
{
    if (aligned && count >= VECTOR) {
        uint4 bits;
        memcpy(&bits, from.x, sizeof bits);
        *(uint4 *)to = bits;
    } else {
        for (int i = 0; i < VECTOR && i < count; i++) to[i] = from.x[i];
    }
}

template <typename F, typename T>
static __device__ __forceinline__ struct fp8_vector quantize_vector(const T *x, int count,
                                                                    bool aligned, float scale)
{
    struct fp8_vector v;
    float values[VECTOR] = {};
    if (aligned && count >= VECTOR)
        load<VECTOR>(x, values);
    else
        for (int i = 0; i < VECTOR && i < count; i++) values[i] = to_f32(x[i]);
    for (int i = 0; i < VECTOR; i += 2) {
        uint16_t pair = fp8x2_from_f32<F>(scale * values[i], scale * values[i + 1]);
        v.x[i] = (uint8_t)pair, v.x[i + 1] = (uint8_t)(pair >> 8);
    }
    return v;
}

static __device__ __forceinline__ bool is_aligned_16(const void *x)
{
    return (uintptr_t)x % 16 == 0;
}

/* row_major, column_major: NULL if that copy is not needed. */
template <typename F, typename T>
static __global__ void __launch_bounds__(THREADS)
    fp8_quantize_kernel(size_t rows, size_t columns, const T *x, uint8_t *row_major,
                        uint8_t *column_major, const struct float8_scale *scale)
{
    __shared__ uint8_t square[SIDE][STRIDE];
    size_t across = (columns + SIDE - 1) / SIDE;
    size_t row0 = blockIdx.x / across * SIDE, column0 = blockIdx.x % across * SIDE;
    int line = (int)threadIdx.x / (SIDE / VECTOR), at = (int)threadIdx.x % (SIDE / VECTOR) * VECTOR;
    size_t r = row0 + line, c = column0 + at;
    struct fp8_vector v = {};
    if (r < rows && c < columns) {
        int count = (int)min(columns - c, (size_t)VECTOR);
        bool whole_rows = columns % VECTOR == 0;
        const T *from = x + r * columns + c;
        v = quantize_vector<F>(from, count, is_aligned_16(x) && whole_rows, scale->scale);
        if (row_major)
            store_vector(v, row_major + r * columns + c, count,
                         is_aligned_16(row_major) && whole_rows);
    }
    if (!column_major) return;
    for (int i = 0; i < VECTOR; i++) square[line][at + i] = v.x[i];
    __syncthreads();
    c = column0 + line, r = row0 + at;
    if (c >= columns || r >= rows) return;
    for (int i = 0; i < VECTOR; i++) v.x[i] = square[at + i][line];
    store_vector(v, column_major + c * rows + r, (int)min(rows - r, (size_t)VECTOR),
                 is_aligned_16(column_major) && rows % VECTOR == 0);
}

template <typename F, typename T>
static enum status launch(const struct quantize *a, const struct quantize_io *io,
                          struct queue *queue)
{
    size_t columns = a->columns ? a->columns : a->n, rows = a->n / columns;
    unsigned summed = a->summed ? a->summed : OVER_COLUMNS | OVER_ROWS;
    uint8_t *y = (uint8_t *)io->y_n;
    LAUNCH((fp8_quantize_kernel<F, T>), (unsigned)(ceil_div(rows, SIDE) * ceil_div(columns, SIDE)),
           THREADS, 0, queue, rows, columns, (const T *)io->x_n, summed & OVER_COLUMNS ? y : NULL,
           summed & OVER_ROWS ? y + a->n : NULL, io->scale);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(fp8_quantize)(const struct quantize *a,
                                              const struct quantize_io *io, struct queue *queue)
{
    if (queue->sizing || !a->n) return STATUS_OK;
    if (a->dtype == F32)
        return a->to == E4M3 ? launch<struct e4m3, float>(a, io, queue)
                             : launch<struct e5m2, float>(a, io, queue);
    return a->to == E4M3 ? launch<struct e4m3, bf16>(a, io, queue)
                         : launch<struct e5m2, bf16>(a, io, queue);
}
