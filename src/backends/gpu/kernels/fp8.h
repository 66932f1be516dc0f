/* eight_bits.h (gpu) -- numbers of eight bits as a device keeps them.
 *
 * A tensor of rows x columns that `quantize` (ops/float8.h) rounds lies in the bytes of as many
 * bf16: first row after row, for products that sum over its columns, then column after column, for
 * those that sum over its rows.  So what a product sums over always lies close together, as the
 * matrix units of these devices want it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/kernels/kernel.h"

struct e4m3 {
    uint8_t bits;
};
struct e5m2 {
    uint8_t bits;
};

/* Of f32 bits: what of the mantissa is dropped, the largest, the least normal number, the
 * difference of the exponents' zeros, and what shows a smaller number's multiple of the least when
 * added. */
struct eight_bits_grid {
    unsigned dropped, largest, least, offset;
    float magic;
};

template <typename T> static __device__ __forceinline__ struct eight_bits_grid eight_bits_grid();
template <> __device__ __forceinline__ struct eight_bits_grid eight_bits_grid<struct e4m3>() {
    return {20, 0x43E00000u, 0x3C800000u, 120 << 3, 16384};
} template <> __device__ __forceinline__ struct eight_bits_grid eight_bits_grid<struct e5m2>() {
    return {21, 0x47600000u, 0x38800000u, 112 << 2, 128};
}

/* Rounded as quantize says. */
template <typename T>
static __device__ __forceinline__ uint8_t eight_bits_of(float x)
{
    struct eight_bits_grid g = eight_bits_grid<T>();
    unsigned bits = __float_as_uint(x), size = bits & 0x7FFFFFFFu;
    unsigned bounded = size > g.largest ? g.largest : size;
    unsigned half = (1u << (g.dropped - 1)) - 1 + (bounded >> g.dropped & 1);
    unsigned normal = ((bounded + half) >> g.dropped) - g.offset;
    unsigned small = __float_as_uint(__uint_as_float(bounded) + g.magic) - __float_as_uint(g.magic);
    unsigned code = size > 0x7F800000u ? 0x7Fu : bounded < g.least ? small : normal;
    return (uint8_t)(code | (bits >> 24 & 0x80u));
}

/* Two at once, the first in the lower half. */
template <typename T> static __device__ __forceinline__ uint16_t eight_bits_pair(float a, float b)
{
    return (uint16_t)(eight_bits_of<T>(a) | eight_bits_of<T>(b) << 8);
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
template <> __device__ __forceinline__ uint16_t eight_bits_pair<struct e4m3>(float a, float b)
{
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
    return pair;
}
template <> __device__ __forceinline__ uint16_t eight_bits_pair<struct e5m2>(float a, float b)
{
    uint16_t pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
    return pair;
}
#endif

/* Exact, NaN too. */
static __device__ __forceinline__ bf16 eight_bits_wide(unsigned bits, unsigned mantissa,
                                                       float least)
{
    unsigned size = bits & 0x7Fu;
    unsigned wide = __float_as_uint(__uint_as_float(size << (23 - mantissa)) * least);
    if (size == 0x7Fu) wide = 0x7FC00000u;
    return (bf16)((wide | (bits & 0x80u) << 24) >> 16);
}
static __device__ __forceinline__ bf16 to_bf16(struct e4m3 x)
{
    return eight_bits_wide(x.bits, 3, 0x1p120f);
}
static __device__ __forceinline__ bf16 to_bf16(struct e5m2 x)
{
    return eight_bits_wide(x.bits, 2, 0x1p112f);
}
