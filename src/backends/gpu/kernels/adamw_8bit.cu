/* adamw_8bit.cu -- AdamW with moments in 8 bits; memory-bound, every element is read and written
 * once.
 *
 * 32 lanes own a quantization block, 8 consecutive elements each, so a wavefront of 64 has two.
 * Every thread block computes the quantization maps into shared memory. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/adamw_8bit.h"
#include "tensor/blockwise.h"
#include "tensor/queue.h"
}

#include <math.h>

enum {
    CODES = BLOCKWISE_CODES,
    BLOCK = CODES, /* a thread per code */
    LANES = 32,
    WIDTH = BLOCKWISE_BLOCK / LANES,
    OWNERS = BLOCK / LANES,
    MAX_GRID = 2048
};

struct buffers {
    size_t n;
    float *w;
    uint8_t *m, *v;
    float *m_scale, *v_scale;
    const void *g;
    void *copy;
    uint16_t *low;
};

struct shared_map {
    float value[CODES], above[CODES + 1];
};

/* The value of a code: blockwise_map_init. */
template <bool SIGNED> static __device__ float map_value(int code)
{
    const int zero = SIGNED ? 127 : 0, offset = code < zero ? zero - code : code - zero;
    if (offset == 0) return 0;
    if (code == CODES - 1) return 1;
    static const double powers[BLOCKWISE_DECADES] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    const int first = SIGNED ? 1 : 2, index = SIGNED ? offset : offset + 1; /* cells + cell */
    int decade = 0;
    while (decade < BLOCKWISE_DECADES - 1 && index >= first << (decade + 1)) decade++;
    const int cells = first << decade, cell = index - cells;
    const float value = (float)(powers[decade] * fma((double)(2 * cell + 1), 0.45 / cells, 0.1));
    return code < zero ? -value : value;
}

/* All threads must call it; a barrier must follow. */
template <bool SIGNED> static __device__ void fill_map(struct shared_map *map)
{
    const int code = (int)(threadIdx.x % CODES), zero = SIGNED ? 127 : 0;
    const float value = map_value<SIGNED>(code), infinity = __uint_as_float(0x7F800000u);
    map->value[code] = value;
    map->above[code] = code ? (map_value<SIGNED>(code - 1) + value) / 2 : -infinity;
    if (code == zero + 1) map->above[code] = 0;
    if (SIGNED && code == zero) map->above[code] = __uint_as_float(0x80000001u);
    if (code == 0) map->above[CODES] = infinity;
}

/* blockwise_code. */
template <bool SIGNED> static __device__ unsigned find_code(const struct shared_map *map, float x)
{
    const float a = fabsf(x);
    float up = 1e6f;
    int decade = 0;
    if (a > 1e-6f) up = 1e5f, decade = 1;
    if (a > 1e-5f) up = 1e4f, decade = 2;
    if (a > 1e-4f) up = 1e3f, decade = 3;
    if (a > 1e-3f) up = 1e2f, decade = 4;
    if (a > 1e-2f) up = 1e1f, decade = 5;
    if (a > 1e-1f) up = 1, decade = 6;
    const int count = 1 << (decade + !SIGNED);
    int index = (int)((a * up - 0.1f) * (float)count * (1 / 0.9f));
    index = max(0, min(index, count - 1)) + count - !SIGNED;
    int code = SIGNED ? 127 + (x < 0 ? -index : index) : index;
    code += x > map->above[code + 1];
    code -= !(x > map->above[code]);
    return (unsigned)code;
}

/* --- eight elements of a lane, of which `count` exist; WIDE: all do, and they are aligned --- */

template <bool WIDE, typename T>
static __device__ __forceinline__ void load_lane(const T *x, int count, float (&to)[WIDTH])
{
    if constexpr (WIDE)
        load<WIDTH>(x, to);
    else
        for (int i = 0; i < WIDTH; i++) to[i] = i < count ? to_f32(x[i]) : 0;
}

template <bool WIDE, typename T>
static __device__ __forceinline__ void store_lane(const float (&from)[WIDTH], int count, T *x)
{
    if constexpr (WIDE)
        store<WIDTH>(from, x);
    else
        for (int i = 0; i < WIDTH; i++)
            if (i < count) from_f32(from[i], x + i);
}

template <bool WIDE>
static __device__ __forceinline__ void load_codes(const uint8_t *x, int count, uint8_t (&to)[WIDTH])
{
    if constexpr (WIDE) {
        uint2 bits = *(const uint2 *)x;
        memcpy(to, &bits, sizeof bits);
    } else {
        for (int i = 0; i < WIDTH; i++) to[i] = i < count ? x[i] : 0;
    }
}

template <bool WIDE>
static __device__ __forceinline__ void store_codes(const uint8_t (&from)[WIDTH], int count,
                                                   uint8_t *x)
{
    if constexpr (WIDE) {
        uint2 bits;
        memcpy(&bits, from, sizeof bits);
        *(uint2 *)x = bits;
    } else {
        for (int i = 0; i < WIDTH; i++)
            if (i < count) x[i] = from[i];
    }
}

template <bool WIDE, typename T, bool SPLIT>
static __device__ void load_weights(const struct buffers &b, size_t at, int count,
                                    float (&w)[WIDTH])
{
    if constexpr (!SPLIT)
        load_lane<WIDE>(b.w + at, count, w);
    else if constexpr (WIDE) {
        uint16_t half[WIDTH], low[WIDTH];
        load_bits<WIDTH>((const bf16 *)b.copy + at, half), load_bits<WIDTH>(b.low + at, low);
        for (int i = 0; i < WIDTH; i++) w[i] = join_split(half[i], low[i]);
    } else {
        for (int i = 0; i < WIDTH; i++)
            w[i] = i < count ? join_split(((const bf16 *)b.copy)[at + i], b.low[at + i]) : 0;
    }
}

template <bool WIDE, typename T, bool SPLIT>
static __device__ void store_weights(const float (&w)[WIDTH], const struct buffers &b, size_t at,
                                     int count)
{
    if constexpr (SPLIT) {
        uint16_t half[WIDTH], low[WIDTH];
        for (int i = 0; i < WIDTH; i++) make_split(w[i], &half[i], &low[i]);
        if constexpr (WIDE) {
            store_bits<WIDTH>(half, (bf16 *)b.copy + at), store_bits<WIDTH>(low, b.low + at);
        } else {
            for (int i = 0; i < WIDTH; i++)
                if (i < count) ((bf16 *)b.copy)[at + i] = half[i], b.low[at + i] = low[i];
        }
    } else {
        store_lane<WIDE>(w, count, b.w + at);
        if (b.copy) store_lane<WIDE>(w, count, (T *)b.copy + at);
    }
}

/* --- a quantization block --- */

template <bool WIDE>
static __device__ __forceinline__ void dequantize(const struct shared_map *map, const uint8_t *x,
                                                  int count, float scale, float (&to)[WIDTH])
{
    uint8_t codes[WIDTH];
    load_codes<WIDE>(x, count, codes);
    for (int i = 0; i < WIDTH; i++) {
        const bool is_zero = scale == 0 || (!WIDE && i >= count);
        to[i] = is_zero ? 0 : map->value[codes[i]] * scale;
    }
}

/* All lanes of the warp must call it.  blockwise_quantize. */
template <bool WIDE, bool SIGNED>
static __device__ __forceinline__ void quantize(const struct shared_map *map,
                                                const float (&x)[WIDTH], int count, uint8_t *to,
                                                float *scale)
{
    float most = 0, least = 0;
    for (int i = 0; i < WIDTH; i++) {
        most = x[i] > most ? x[i] : most;
        if (SIGNED) least = x[i] < least ? x[i] : least;
    }
    for (int mask = LANES / 2; mask; mask /= 2) {
        most = larger(most, shuffle_xor(most, mask));
        if (SIGNED) least = -larger(-least, -shuffle_xor(least, mask));
    }
    const float largest = most >= -least ? most : least;
    const bool is_zero = fabsf(largest) < BLOCKWISE_MIN_SCALE;
    const float inverse = is_zero ? 0 : 1 / largest;
    uint8_t codes[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        codes[i] = is_zero ? 0 : (uint8_t)find_code<SIGNED>(map, x[i] * inverse);
    if (count <= 0) return;
    store_codes<WIDE>(codes, count, to);
    if (threadIdx.x % LANES == 0) *scale = is_zero ? 0 : largest;
}

/* The explicit FMAs of the reference, so that both round to the same codes. */
template <bool WIDE, typename G, typename T, bool SPLIT>
static __device__ void update_block(const struct adamw_coefficients &r, const struct buffers &b,
                                    const struct shared_map *maps, size_t block, int count)
{
    const size_t at = block * BLOCKWISE_BLOCK + threadIdx.x % LANES * WIDTH;
    float m[WIDTH] = {}, v[WIDTH] = {}, w[WIDTH], grad[WIDTH];
    if (count > 0) {
        dequantize<WIDE>(&maps[0], b.m + at, count, b.m_scale[block], m);
        dequantize<WIDE>(&maps[1], b.v + at, count, b.v_scale[block], v);
        load_lane<WIDE>((const G *)b.g + at, count, grad);
        load_weights<WIDE, T, SPLIT>(b, at, count, w);
        for (int i = 0; i < WIDTH; i++) {
            float g = grad[i] * r.scale;
            m[i] = fmaf(r.new1, g, r.beta1 * m[i]);
            v[i] = fmaf(r.new2 * g, g, r.beta2 * v[i]);
            w[i] = fmaf(r.keep, w[i], -(r.rate * m[i] / fmaf(sqrtf(v[i]), r.root, r.eps)));
        }
        store_weights<WIDE, T, SPLIT>(w, b, at, count);
    }
    warp_sync(); /* all lanes have read the scales */
    quantize<WIDE, true>(&maps[0], m, count, b.m + at, b.m_scale + block);
    quantize<WIDE, false>(&maps[1], v, count, b.v + at, b.v_scale + block);
}

/* G: type of the gradients.  ALIGNED: every buffer is aligned to 16 bytes. */
template <bool ALIGNED, typename G, typename T, bool SPLIT>
__global__ static void __launch_bounds__(BLOCK)
    adamw_8bit_kernel(struct adamw_coefficients r, struct buffers b)
{
    __shared__ struct shared_map maps[2];
    fill_map<true>(&maps[0]), fill_map<false>(&maps[1]);
    __syncthreads();
    const size_t blocks = (b.n + BLOCKWISE_BLOCK - 1) / BLOCKWISE_BLOCK;
    /* Every thread makes the same number of rounds, since all lanes must reach the shuffles. */
    for (size_t first = (size_t)blockIdx.x * OWNERS; first < blocks;
         first += (size_t)gridDim.x * OWNERS) {
        const size_t block = first + threadIdx.x / LANES;
        const size_t at = block * BLOCKWISE_BLOCK + threadIdx.x % LANES * WIDTH;
        const int count = at < b.n ? (int)min(b.n - at, (size_t)WIDTH) : 0;
        /* The same choice for the whole round. */
        if (ALIGNED && (first + OWNERS) * BLOCKWISE_BLOCK <= b.n)
            update_block<true, G, T, SPLIT>(r, b, maps, block, count);
        else
            update_block<false, G, T, SPLIT>(r, b, maps, block, count);
    }
}

template <typename G, typename T, bool SPLIT>
static enum status launch_adamw_8bit(const struct adamw_coefficients &r, const struct buffers &b,
                                     struct queue *queue)
{
    const size_t needed = ceil_div(b.n, (size_t)OWNERS * BLOCKWISE_BLOCK);
    const unsigned grid = needed < MAX_GRID ? (unsigned)needed : (unsigned)MAX_GRID;
    if (is_aligned(b.w) && is_aligned(b.m) && is_aligned(b.v) && is_aligned(b.g) &&
        is_aligned(b.copy) && is_aligned(b.low))
        LAUNCH((adamw_8bit_kernel<true, G, T, SPLIT>), grid, BLOCK, 0, queue, r, b);
    else
        LAUNCH((adamw_8bit_kernel<false, G, T, SPLIT>), grid, BLOCK, 0, queue, r, b);
    return STATUS_OK;
}

template <typename G>
static enum status launch_by_weights(const struct adamw *a, const struct adamw_coefficients &r,
                                     const struct buffers &b, struct queue *queue)
{
    if (a->split) return launch_adamw_8bit<G, bf16, true>(r, b, queue);
    return a->copy_dtype == F32 ? launch_adamw_8bit<G, float, false>(r, b, queue)
                                : launch_adamw_8bit<G, bf16, false>(r, b, queue);
}

extern "C" enum status GPU_NAME(adamw_8bit)(const struct adamw_8bit *op,
                                            const struct adamw_8bit_io *io, struct queue *queue)
{
    const struct adamw *a = &op->adamw;
    if (queue->sizing || !a->n) return STATUS_OK;
    const struct adamw_coefficients r = adamw_coefficients_of(a);
    struct buffers b = {a->n,        io->w_n, io->m_n,    io->v_n,  io->m_scale,
                        io->v_scale, io->g_n, io->copy_n, io->low_n};
    return a->gradients == F32 ? launch_by_weights<float>(a, r, b, queue)
                               : launch_by_weights<bf16>(a, r, b, queue);
}
