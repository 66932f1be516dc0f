/* dtype.h -- number types in memory, and conversions between them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Types to compute with, and after DTYPE_COUNT types of storage only.  INT8: quantized by blocks
 * (blockwise.h). */
enum dtype { F32, BF16, DTYPE_COUNT, INT8 = DTYPE_COUNT };

typedef uint16_t bf16; /* the upper half of a float32 */

static inline size_t dtype_bytes(enum dtype d) { return d == F32 ? 4 : d == BF16 ? 2 : 1; }
static inline const char *dtype_name(enum dtype d)
{
    return d == F32 ? "float32" : d == BF16 ? "bfloat16" : "int8";
}

static inline float bf16_to_f32(bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* Round to nearest, ties to even; NaN stays NaN. */
static inline bf16 bf16_from_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bf16)((x != x ? bits | 0x400000u : bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

/* Stochastic rounding: for a uniform `random`, rounds up with a probability equal to the fraction
 * of the last bit that is cut off.  NaN stays NaN. */
static inline bf16 bf16_from_f32_stochastic(float x, uint16_t random)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bf16)((x != x ? bits | 0x400000u : bits + random) >> 16);
}

/* Split storage of an F32: a BF16 half, rounded to nearest with ties away from zero, and the 16 low
 * bits, whose highest bit records whether the half was rounded up.  Joining restores every number
 * exactly, with the sign of zeros and infinities.  NaNs keep their bits and are NaN in the half,
 * too, except NaNs whose payload is only in the low 16 bits, which arithmetic does not produce:
 * they may become another NaN, and their half may be infinity. */
static inline bf16 split_half(uint32_t bits)
{
    uint32_t is_nan = (bits >> 16 & 0x7FFFu) > 0x7F80u;
    return (bf16)((is_nan ? bits : bits + 0x8000u) >> 16);
}

static inline uint32_t split_join(bf16 half, uint16_t low)
{
    uint32_t is_nan = (half & 0x7FFFu) > 0x7F80u, up = is_nan ? 0 : (uint32_t)low >> 15;
    return ((uint32_t)half - up) << 16 | low;
}

static inline float split_to_f32(bf16 half, uint16_t low)
{
    uint32_t bits = split_join(half, low);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void split_from_f32(float x, bf16 *half, uint16_t *low)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    *half = split_half(bits), *low = (uint16_t)bits;
}
