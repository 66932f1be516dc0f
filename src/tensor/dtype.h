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
