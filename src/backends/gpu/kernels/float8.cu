/* float8.cu -- amax, scales, and quantization to FP8 values that are kept as bf16.
 *
 * Order    amax compares the bits of |x| as integers, which order like the values, with NaN above
 *          everything: so the result does not depend on the order of the reduction. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/fp8.h"

extern "C" {
#include "backends/gpu/fp8.h"
#include "ops/float8.h"
}

enum { BLOCK = 256, MAX_PARTIALS = 1024 };
static const unsigned max_grid = 4096;

template <int WIDTH, typename T> __device__ static unsigned amax_of_vector(const T *x, unsigned max)
{
    float values[WIDTH];
    load<WIDTH>(x, values);
    for (int i = 0; i < WIDTH; i++) max = larger(max, abs_bits<float>(values[i]));
    return max;
}

/* One partial result per block; some blocks may have no elements. */
template <int WIDTH, typename T>
__global__ static void __launch_bounds__(BLOCK)
    amax_kernel(size_t n, const T *x, unsigned *partials)
{
    const size_t threads = (size_t)gridDim.x * BLOCK, vectors = n / WIDTH;
    const size_t first = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    unsigned max = 0;
    for (size_t i = first; i < vectors; i += threads)
        max = amax_of_vector<WIDTH>(x + i * WIDTH, max);
    for (size_t i = vectors * WIDTH + first; i < n; i += threads)
        max = amax_of_vector<1>(x + i, max);
    max = block_max(max);
    if (threadIdx.x == 0) partials[blockIdx.x] = max;
}

/* One block, one thread per partial result. */
__global__ static void __launch_bounds__(MAX_PARTIALS)
    amax_finish_kernel(const unsigned *partials, float *amax)
{
    unsigned max = block_max(partials[threadIdx.x]);
    if (threadIdx.x == 0) *amax = __uint_as_float(max);
}

template <int WIDTH, typename T>
static enum status launch_amax(const struct amax *a, const struct amax_io *io, unsigned *partials,
                               struct queue *queue)
{
    size_t blocks = ceil_div(a->n, (size_t)BLOCK * WIDTH);
    unsigned grid = block_size(blocks, MAX_PARTIALS);
    LAUNCH((amax_kernel<WIDTH, T>), grid, BLOCK, 0, queue, a->n, (const T *)io->x_n, partials);
    LAUNCH(amax_finish_kernel, 1, grid, 0, queue, partials, io->amax);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(amax)(const struct amax *a, const struct amax_io *io,
                                      struct queue *queue)
{
    size_t mark = arena_mark(&queue->scratch);
    unsigned *partials = (unsigned *)arena_alloc(&queue->scratch, MAX_PARTIALS, sizeof *partials);
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
    if (a->dtype == F32)
        return is_aligned(io->x_n) ? launch_amax<8, float>(a, io, partials, queue)
                                   : launch_amax<1, float>(a, io, partials, queue);
    return is_aligned(io->x_n) ? launch_amax<8, bf16>(a, io, partials, queue)
                               : launch_amax<1, bf16>(a, io, partials, queue);
}

__global__ static void find_scale_kernel(float format_max, int amaxes, struct find_scale_io io)
{
    compute_scale(io, amaxes, format_max, true);
}

extern "C" enum status GPU_NAME(find_scale)(const struct find_scale *a,
                                            const struct find_scale_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    LAUNCH(find_scale_kernel, 1, 1, 0, queue, float8_max(a->to), a->amaxes, *io);
    return STATUS_OK;
}

/* How to round an f32 to the values of a format. */
struct rounding_format {
    unsigned dropped_bits, max, min_normal; /* of the mantissa; f32 bits of the values */
    float magic;                            /* adding and subtracting it rounds a subnormal */
};

/* Rounds to nearest even, saturates, keeps NaN. */
__device__ static float round_to_format(const struct rounding_format &f, float x)
{
    const unsigned bits = __float_as_uint(x), size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) return x;
    const unsigned bounded = size > f.max ? f.max : size;
    const unsigned half = (1u << (f.dropped_bits - 1)) - 1 + (bounded >> f.dropped_bits & 1);
    const unsigned normal = (bounded + half) >> f.dropped_bits << f.dropped_bits;
    const float subnormal = __uint_as_float(bounded) + f.magic - f.magic;
    const unsigned rounded = bounded < f.min_normal ? __float_as_uint(subnormal) : normal;
    return __uint_as_float(rounded | (bits & 0x80000000u));
}

template <int WIDTH, typename T>
__device__ static void quantize_vector(const struct rounding_format &f, float scale, const T *x,
                                       bf16 *y)
{
    float values[WIDTH];
    load<WIDTH>(x, values);
    for (int i = 0; i < WIDTH; i++) values[i] = round_to_format(f, scale * values[i]);
    store<WIDTH>(values, y);
}

template <int WIDTH, typename T>
__global__ static void __launch_bounds__(BLOCK)
    quantize_kernel(struct rounding_format f, const struct float8_scale *factor, size_t n,
                    const T *x, bf16 *y)
{
    const float scale = factor->scale;
    const size_t threads = (size_t)gridDim.x * BLOCK, vectors = n / WIDTH;
    const size_t first = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    for (size_t i = first; i < vectors; i += threads)
        quantize_vector<WIDTH>(f, scale, x + i * WIDTH, y + i * WIDTH);
    for (size_t i = vectors * WIDTH + first; i < n; i += threads)
        quantize_vector<1>(f, scale, x + i, y + i);
}

template <int WIDTH, typename T>
static enum status launch_quantize(const struct quantize *a, const struct quantize_io *io,
                                   struct queue *queue)
{
    const struct rounding_format e4m3 = {20, 0x43E00000u, 0x3C800000u,
                                         24576}; /* 448, 2^-6; 1.5 2^14 */
    const struct rounding_format e5m2 = {21, 0x47600000u, 0x38800000u,
                                         192}; /* 57344, 2^-14; 1.5 2^7 */
    size_t blocks = ceil_div(a->n, (size_t)BLOCK * WIDTH);
    unsigned grid = blocks < max_grid ? (unsigned)blocks : max_grid;
    LAUNCH((quantize_kernel<WIDTH, T>), grid, BLOCK, 0, queue, a->to == E4M3 ? e4m3 : e5m2,
           io->scale, a->n, (const T *)io->x_n, io->y_n);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(quantize)(const struct quantize *a, const struct quantize_io *io,
                                          struct queue *queue)
{
    if (queue->sizing || !a->n) return STATUS_OK;
    if (((const struct gpu_queue *)queue)->native_fp8) return GPU_NAME(fp8_quantize)(a, io, queue);
    bool wide = is_aligned(io->x_n) && is_aligned(io->y_n);
    if (a->dtype == F32)
        return wide ? launch_quantize<8, float>(a, io, queue)
                    : launch_quantize<1, float>(a, io, queue);
    return wide ? launch_quantize<8, bf16>(a, io, queue) : launch_quantize<1, bf16>(a, io, queue);
}
