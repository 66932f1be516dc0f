/* fp8.h -- FP8 values in memory (E4M3, E5M2): conversions with the rounding of ops/float8.h, and
 * the scale of a tensor.
 *
 * Memory   A quantized tensor of rows x columns takes the space of as many bf16: first its bytes in
 *          row-major order, for GEMMs that contract over its columns, then in column-major order,
 *          for those that contract over its rows.  So K is contiguous in every FP8 operand, as the
 *          matrix units require. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/float8.h"
}

/* As find_scale of ops/float8.h, by one thread; only if `stores` it writes to io. */
static __device__ __forceinline__ float compute_scale(const struct find_scale_io &io, int amaxes,
                                                      float format_max, bool stores)
{
    unsigned max = abs_bits<float>(io.amax[0]);
    for (int i = 1; i < amaxes; i++) max = larger(max, abs_bits<float>(io.amax[i]));
    const float current = __uint_as_float(max), delayed = io.delayed ? *io.delayed : 0;
    const double size = (double)current < 1e-12 ? 1e-12 : (double)current;
    const float scale = delayed > 0 ? delayed : (float)((double)format_max / size);
    if (stores) {
        if (io.running && current > *io.running) *io.running = current;
        *io.scale = {scale, 1 / scale};
    }
    return scale;
}

struct e4m3 {
    uint8_t bits;
};
struct e5m2 {
    uint8_t bits;
};

/* How to round the bits of an f32 to a format. */
struct fp8_format {
    unsigned dropped_bits, max, min_normal; /* of the mantissa; f32 bits of the values */
    unsigned exponent_offset;               /* difference of the exponent biases, shifted */
    float magic;                            /* adding it rounds a subnormal in the low bits */
};

template <typename T> static __device__ __forceinline__ struct fp8_format fp8_format_of();
// clang-format off
template <> __device__ __forceinline__ struct fp8_format fp8_format_of<struct e4m3>()
{
    return {20, 0x43E00000u, 0x3C800000u, 120 << 3, 16384};
}
template <> __device__ __forceinline__ struct fp8_format fp8_format_of<struct e5m2>()
{
    return {21, 0x47600000u, 0x38800000u, 112 << 2, 128};
}
// clang-format on

/* Rounds to nearest even, saturates, keeps NaN. */
template <typename T>
static __device__ __forceinline__ uint8_t fp8_from_f32(float x)
{
    struct fp8_format f = fp8_format_of<T>();
    unsigned bits = __float_as_uint(x), size = bits & 0x7FFFFFFFu;
    unsigned bounded = size > f.max ? f.max : size;
    unsigned half = (1u << (f.dropped_bits - 1)) - 1 + (bounded >> f.dropped_bits & 1);
    unsigned normal = ((bounded + half) >> f.dropped_bits) - f.exponent_offset;
    unsigned subnormal =
        __float_as_uint(__uint_as_float(bounded) + f.magic) - __float_as_uint(f.magic);
    unsigned code = size > 0x7F800000u ? 0x7Fu : bounded < f.min_normal ? subnormal : normal;
    return (uint8_t)(code | (bits >> 24 & 0x80u));
}

/* Two values, the first in the lower byte. */
template <typename T> static __device__ __forceinline__ uint16_t fp8x2_from_f32(float a, float b)
{
    return (uint16_t)(fp8_from_f32<T>(a) | fp8_from_f32<T>(b) << 8);
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
template <> __device__ __forceinline__ uint16_t fp8x2_from_f32<struct e4m3>(float a, float b)
{
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
    return pair;
}
template <> __device__ __forceinline__ uint16_t fp8x2_from_f32<struct e5m2>(float a, float b)
{
    uint16_t pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
    return pair;
}
#endif

/* Exact: every FP8 value is a bf16; NaN stays NaN.  `rescale` corrects the exponent bias. */
static __device__ __forceinline__ bf16 fp8_to_bf16(unsigned bits, unsigned mantissa_bits,
                                                   float rescale)
{
    unsigned size = bits & 0x7Fu;
    unsigned wide = __float_as_uint(__uint_as_float(size << (23 - mantissa_bits)) * rescale);
    if (size == 0x7Fu) wide = 0x7FC00000u;
    return (bf16)((wide | (bits & 0x80u) << 24) >> 16);
}
static __device__ __forceinline__ bf16 to_bf16(struct e4m3 x)
{
    return fp8_to_bf16(x.bits, 3, 0x1p120f);
}
static __device__ __forceinline__ bf16 to_bf16(struct e5m2 x)
{
    return fp8_to_bf16(x.bits, 2, 0x1p112f);
}
