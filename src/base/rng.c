// SPDX-License-Identifier: Apache-2.0
#include "base/rng.h"

#include <math.h>

__extension__ typedef unsigned __int128 wide;

/* In place, so that a loop over many counters can be vectorized. */
static inline void philox(uint64_t key, uint32_t *c0, uint32_t *c1, uint32_t *c2, uint32_t *c3)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * *c0, p1 = (uint64_t)0xCD9E8D57u * *c2;
        *c0 = (uint32_t)(p1 >> 32) ^ *c1 ^ k0;
        *c1 = (uint32_t)p1;
        *c2 = (uint32_t)(p0 >> 32) ^ *c3 ^ k1;
        *c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

struct rng_block rng_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    philox(key, &c0, &c1, &c2, &c3);
    return (struct rng_block){{c0, c1, c2, c3}};
}

/* The purpose is in the high byte of the step's upper word, so steps must be below 2^56. */
static uint32_t upper_word(enum rng_purpose purpose, uint64_t step)
{
    return (uint32_t)(step >> 32) ^ ((uint32_t)purpose << 24);
}

struct rng_block rng_bits(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint64_t position)
{
    return rng_philox(seed, (uint32_t)position, (uint32_t)(position >> 32), (uint32_t)step,
                      upper_word(purpose, step));
}

void rng_fill(uint64_t seed, enum rng_purpose purpose, uint64_t step,
              const struct rng_positions *at, uint32_t bits[4][RNG_FILL])
{
    const uint32_t low = (uint32_t)step, high = upper_word(purpose, step);
    const uint64_t first = at->first, stride = at->stride;
    const int count = at->count;
    for (int i = 0; i < count; i++) {
        uint64_t position = first + stride * (uint64_t)i;
        uint32_t c0 = (uint32_t)position, c1 = (uint32_t)(position >> 32), c2 = low, c3 = high;
        philox(seed, &c0, &c1, &c2, &c3);
        bits[0][i] = c0, bits[1][i] = c1, bits[2][i] = c2, bits[3][i] = c3;
    }
}

static double unit(uint32_t high, uint32_t low)
{
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

double rng_uniform(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint64_t position)
{
    struct rng_block b = rng_bits(seed, purpose, step, position);
    return unit(b.bits[0], b.bits[1]);
}

double rng_normal(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint64_t position)
{
    struct rng_block b = rng_bits(seed, purpose, step, position);
    double u = 1.0 - unit(b.bits[0], b.bits[1]); /* in (0, 1] */
    double v = unit(b.bits[2], b.bits[3]);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t rng_below(uint64_t below, uint64_t seed, enum rng_purpose purpose, uint64_t step,
                   uint64_t position)
{
    struct rng_block b = rng_bits(seed, purpose, step, position);
    uint64_t bits = (uint64_t)b.bits[0] << 32 | b.bits[1];
    return (uint64_t)((wide)bits * below >> 64);
}
