/* stochastic.h -- stores in bf16 with stochastic rounding, whose random bits are a function of the
 * element's position in the whole model. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "base/rng.h"
#include "ops/update.h"
}

struct philox_words {
    unsigned a, b, c, d;
};

/* Philox 4x32-10: rng_bits(seed, purpose, step, block) of base/rng.h. */
static __device__ struct philox_words random_block(const struct random_position &r, uint64_t block)
{
    unsigned c0 = (unsigned)block, c1 = (unsigned)(block >> 32), c2 = (unsigned)r.step;
    unsigned c3 = (unsigned)(r.step >> 32) ^ ((unsigned)r.purpose << 24);
    unsigned k0 = (unsigned)r.seed, k1 = (unsigned)(r.seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (unsigned)(p1 >> 32) ^ c1 ^ k0;
        c1 = (unsigned)p1;
        c2 = (unsigned)(p0 >> 32) ^ c3 ^ k1;
        c3 = (unsigned)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {c0, c1, c2, c3};
}

static __device__ __forceinline__ uint16_t random_half(struct philox_words x, unsigned i)
{
    unsigned word = i < 4 ? (i < 2 ? x.a : x.b) : (i < 6 ? x.c : x.d);
    return (uint16_t)(word >> 16 * (i % 2));
}

/* Rounds stochastically, as bf16_from_f32_stochastic of dtype.h. */
static __device__ __forceinline__ bf16 from_f32_random(float x, uint16_t random)
{
    unsigned bits = __float_as_uint(x);
    return (bf16)((x != x ? bits | 0x400000u : bits + random) >> 16);
}

/* Stores elements [at, at + WIDTH) with stochastic rounding.  A Philox block serves several
 * consecutive elements, so it is only recomputed when the position leaves it. */
template <int WIDTH>
static __device__ void store_stochastic(const struct random_position &r, const float (&v)[WIDTH],
                                        size_t at, bf16 *v_n)
{
    uint64_t run = r.run ? at / r.run : 0, in_run = r.run ? at % r.run : at, current = 0;
    uint16_t rounded_bits[WIDTH];
    struct philox_words block = {};
    for (int i = 0; i < WIDTH; i++) {
        uint64_t position = r.position + run * r.stride + in_run;
        if (i == 0 || position / ADAMW_BLOCK != current) {
            current = position / ADAMW_BLOCK;
            block = random_block(r, current);
        }
        rounded_bits[i] =
            from_f32_random(v[i], random_half(block, (unsigned)(position % ADAMW_BLOCK)));
        if (++in_run == r.run) in_run = 0, run++;
    }
    store_bits<WIDTH>(rounded_bits, v_n + at);
}
