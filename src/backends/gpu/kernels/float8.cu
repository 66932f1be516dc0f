/* float8.cu -- on the bits of f32: as whole numbers those of |x| are ordered as |x| is, and NaN is
 * above all.  So the largest is the same in any order. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "backends/gpu/fp8.h"
#include "ops/float8.h"
}

enum { BLOCK = 256, PARTS_MOST = 1024 };
static const unsigned grid_most = 4096;

template <int WIDTH, typename T> __device__ static unsigned largest_at(const T *x, unsigned most)
{
    float numbers[WIDTH];
    load<WIDTH>(x, numbers);
    for (int i = 0; i < WIDTH; i++) most = larger(most, size_bits<float>(numbers[i]));
    return most;
}

/* Each block's largest; some blocks may have nothing to look at. */
template <int WIDTH, typename T>
__global__ static void __launch_bounds__(BLOCK) largest(size_t n, const T *x, unsigned *parts)
{
    const size_t threads = (size_t)gridDim.x * BLOCK, vectors = n / WIDTH;
    const size_t first = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    unsigned most = 0;
    for (size_t i = first; i < vectors; i += threads) most = largest_at<WIDTH>(x + i * WIDTH, most);
    for (size_t i = vectors * WIDTH + first; i < n; i += threads) most = largest_at<1>(x + i, most);
    most = block_max(most);
    if (threadIdx.x == 0) parts[blockIdx.x] = most;
}

/* One block, a thread for each of those. */
__global__ static void __launch_bounds__(PARTS_MOST)
    largest_part(const unsigned *parts, float *largest)
{
    unsigned most = block_max(parts[threadIdx.x]);
    if (threadIdx.x == 0) *largest = __uint_as_float(most);
}

template <int WIDTH, typename T>
static enum status largest_of(const struct amax *a, const struct amax_io *io, unsigned *parts,
                              struct queue *on)
{
    size_t blocks = ceil_div(a->n, (size_t)BLOCK * WIDTH);
    unsigned grid = block_of(blocks, PARTS_MOST);
    LAUNCH((largest<WIDTH, T>), grid, BLOCK, 0, on, a->n, (const T *)io->x_n, parts);
    LAUNCH(largest_part, 1, grid, 0, on, parts, io->largest);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(amax)(const struct amax *a, const struct amax_io *io,
                                      struct queue *on)
{
    size_t mark = arena_mark(&on->scratch);
    unsigned *parts = (unsigned *)arena_take(&on->scratch, PARTS_MOST, sizeof *parts);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    if (a->dtype == F32)
        return is_aligned(io->x_n) ? largest_of<8, float>(a, io, parts, on)
                                   : largest_of<1, float>(a, io, parts, on);
    return is_aligned(io->x_n) ? largest_of<8, bf16>(a, io, parts, on)
                               : largest_of<1, bf16>(a, io, parts, on);
}

/* As float8_current. */
__global__ static void find_scale_kernel(float format_largest, const float *amax,
                                         const float *before, float *seen,
                                         struct float8_scale *scale)
{
    const float largest = *amax, held = before ? *before : 0;
    const double size = (double)largest < 1e-12 ? 1e-12 : (double)largest;
    if (seen && largest > *seen) *seen = largest;
    scale->scale = held > 0 ? held : (float)((double)format_largest / size);
    scale->inverse = 1 / scale->scale;
}

extern "C" enum status GPU_NAME(find_scale)(const struct find_scale *a,
                                            const struct find_scale_io *io, struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    LAUNCH(find_scale_kernel, 1, 1, 0, on, float8_largest(a->to), io->largest, io->held, io->seen,
           io->scale);
    return STATUS_OK;
}

/* Of f32 bits: what of the mantissa is dropped, the largest and the least normal number, and what
 * added and taken away again rounds a smaller one to a multiple of the least. */
struct format {
    unsigned dropped, largest, least;
    float magic;
};

__device__ static float nearest(const struct format &f, float x)
{
    const unsigned bits = __float_as_uint(x), size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) return x;
    const unsigned bounded = size > f.largest ? f.largest : size;
    const unsigned half = (1u << (f.dropped - 1)) - 1 + (bounded >> f.dropped & 1);
    const unsigned normal = (bounded + half) >> f.dropped << f.dropped;
    const float small = __uint_as_float(bounded) + f.magic - f.magic;
    const unsigned rounded = bounded < f.least ? __float_as_uint(small) : normal;
    return __uint_as_float(rounded | (bits & 0x80000000u));
}

template <int WIDTH, typename T>
__device__ static void quantize_at(const struct format &f, float scale, const T *x, bf16 *y)
{
    float numbers[WIDTH];
    load<WIDTH>(x, numbers);
    for (int i = 0; i < WIDTH; i++) numbers[i] = nearest(f, scale * numbers[i]);
    store<WIDTH>(numbers, y);
}

template <int WIDTH, typename T>
__global__ static void __launch_bounds__(BLOCK)
    quantize_kernel(struct format f, const struct float8_scale *by, size_t n, const T *x, bf16 *y)
{
    const float scale = by->scale;
    const size_t threads = (size_t)gridDim.x * BLOCK, vectors = n / WIDTH;
    const size_t first = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    for (size_t i = first; i < vectors; i += threads)
        quantize_at<WIDTH>(f, scale, x + i * WIDTH, y + i * WIDTH);
    for (size_t i = vectors * WIDTH + first; i < n; i += threads)
        quantize_at<1>(f, scale, x + i, y + i);
}

template <int WIDTH, typename T>
static enum status quantize_by(const struct quantize *a, const struct quantize_io *io,
                               struct queue *on)
{
    const struct format e4m3 = {20, 0x43E00000u, 0x3C800000u, 24576}; /* 448, 2^-6; 1.5 2^14 */
    const struct format e5m2 = {21, 0x47600000u, 0x38800000u, 192};   /* 57344, 2^-14; 1.5 2^7 */
    size_t blocks = ceil_div(a->n, (size_t)BLOCK * WIDTH);
    unsigned grid = blocks < grid_most ? (unsigned)blocks : grid_most;
    LAUNCH((quantize_kernel<WIDTH, T>), grid, BLOCK, 0, on, a->to == E4M3 ? e4m3 : e5m2, io->scale,
           a->n, (const T *)io->x_n, io->y_n);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(quantize)(const struct quantize *a, const struct quantize_io *io,
                                          struct queue *on)
{
    if (on->measuring || !a->n) return STATUS_OK;
    if (((const struct gpu_queue *)on)->eight_bits) return GPU_NAME(eight_bits_quantize)(a, io, on);
    bool wide = is_aligned(io->x_n) && is_aligned(io->y_n);
    if (a->dtype == F32)
        return wide ? quantize_by<8, float>(a, io, on) : quantize_by<1, float>(a, io, on);
    return wide ? quantize_by<8, bf16>(a, io, on) : quantize_by<1, bf16>(a, io, on);
}
