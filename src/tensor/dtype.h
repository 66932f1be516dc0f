/* dtype.h -- the types of numbers in memory. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { F32, BF16, DTYPE_COUNT };

typedef uint16_t bf16; /* the upper half of an F32 */

static inline size_t dtype_bytes(enum dtype d) { return d == F32 ? 4 : 2; }
static inline const char *dtype_name(enum dtype d) { return d == F32 ? "float32" : "bfloat16"; }

static inline float bf16_to_f32(bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
static inline bf16 bf16_from_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bf16)((x != x ? bits | 0x400000u : bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

/* Rounds up as often, over all `random`, as x is near to what is above. */
static inline bf16 bf16_from_f32_random(float x, uint16_t random)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bf16)((x != x ? bits | 0x400000u : bits + random) >> 16);
}

/* An F32 in two halves: what it is as BF16, rounded to nearest, ties away from zero, and its 16 low
 * bits, the highest of which tells whether that was up.  Every number comes back, zeros and
 * infinities with their signs.  A NaN comes back as one, and is one as BF16, with the same bits;
 * but for those that only low bits tell from infinity, which no arithmetic makes: they may come
 * back as other NaNs, and are NaN or infinity as BF16. */
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
