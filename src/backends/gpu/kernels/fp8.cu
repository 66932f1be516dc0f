/* eight_bits.cu -- quantize to numbers of eight bits: a block takes a square, writes its rows,
 * turns it in shared memory and writes its columns, so x is read once and all is read and written
 * by 16 bytes. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/fp8.h"

extern "C" {
#include "backends/gpu/fp8.h"
#include "ops/float8.h"
}

enum { SIDE = 64, PART = 16, THREADS = SIDE * SIDE / PART, STRIDE = SIDE + 4 };

struct part {
    uint8_t x[PART];
};

/* Where so many numbers lie behind each other, and begin on 16 bytes, they are moved at once. */
static __device__ __forceinline__ void put(const struct part &from, uint8_t *to, int count,
                                           bool whole)
{
    if (whole && count >= PART) {
        uint4 bits;
        memcpy(&bits, from.x, sizeof bits);
        *(uint4 *)to = bits;
    } else {
        for (int i = 0; i < PART && i < count; i++) to[i] = from.x[i];
    }
}

template <typename F, typename T>
static __device__ __forceinline__ struct part rounded_part(const T *x, int count, bool whole,
                                                           float scale)
{
    struct part p;
    float numbers[PART] = {};
    if (whole && count >= PART)
        load<PART>(x, numbers);
    else
        for (int i = 0; i < PART && i < count; i++) numbers[i] = to_f32(x[i]);
    for (int i = 0; i < PART; i += 2) {
        uint16_t pair = eight_bits_pair<F>(scale * numbers[i], scale * numbers[i + 1]);
        p.x[i] = (uint8_t)pair, p.x[i + 1] = (uint8_t)(pair >> 8);
    }
    return p;
}

static __device__ __forceinline__ bool is_on_16(const void *x) { return (uintptr_t)x % 16 == 0; }

template <typename F, typename T>
static __global__ void __launch_bounds__(THREADS)
    keep_rounded(size_t rows, size_t columns, const T *x, uint8_t *plain, uint8_t *turned,
                 const struct float8_scale *scale)
{
    __shared__ uint8_t square[SIDE][STRIDE];
    size_t across = (columns + SIDE - 1) / SIDE;
    size_t row0 = blockIdx.x / across * SIDE, column0 = blockIdx.x % across * SIDE;
    int line = (int)threadIdx.x / (SIDE / PART), at = (int)threadIdx.x % (SIDE / PART) * PART;
    size_t r = row0 + line, c = column0 + at;
    struct part p = {};
    if (r < rows && c < columns) {
        int count = (int)min(columns - c, (size_t)PART);
        const T *from = x + r * columns + c;
        p = rounded_part<F>(from, count, is_on_16(x) && columns % PART == 0, scale->scale);
        if (plain) put(p, plain + r * columns + c, count, is_on_16(plain) && columns % PART == 0);
    }
    if (!turned) return;
    for (int i = 0; i < PART; i++) square[line][at + i] = p.x[i];
    __syncthreads();
    c = column0 + line, r = row0 + at;
    if (c >= columns || r >= rows) return;
    for (int i = 0; i < PART; i++) p.x[i] = square[at + i][line];
    put(p, turned + c * rows + r, (int)min(rows - r, (size_t)PART),
        is_on_16(turned) && rows % PART == 0);
}

template <typename F, typename T>
static enum status keep(const struct quantize *a, const struct quantize_io *io, struct queue *on)
{
    size_t columns = a->columns ? a->columns : a->n, rows = a->n / columns;
    unsigned summed = a->summed ? a->summed : OVER_COLUMNS | OVER_ROWS;
    uint8_t *y = (uint8_t *)io->y_n;
    LAUNCH((keep_rounded<F, T>), (unsigned)(ceil_div(rows, SIDE) * ceil_div(columns, SIDE)),
           THREADS, 0, on, rows, columns, (const T *)io->x_n, summed & OVER_COLUMNS ? y : NULL,
           summed & OVER_ROWS ? y + a->n : NULL, io->scale);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(eight_bits_quantize)(const struct quantize *a,
                                                     const struct quantize_io *io, struct queue *on)
{
    if (on->measuring || !a->n) return STATUS_OK;
    if (a->dtype == F32)
        return a->to == E4M3 ? keep<struct e4m3, float>(a, io, on)
                             : keep<struct e5m2, float>(a, io, on);
    return a->to == E4M3 ? keep<struct e4m3, bf16>(a, io, on) : keep<struct e5m2, bf16>(a, io, on);
}
