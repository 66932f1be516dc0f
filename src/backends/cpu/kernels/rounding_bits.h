/* rounding_bits.h -- the random bits of stochastic rounding, for consecutive elements: many Philox
 * blocks at once take a third of the time. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/rng.h"
#include "ops/update.h"

#include <string.h>

/* Writes the random bits of n consecutive positions, from `at` on, to `to`. */
static inline void rounding_bits_at(const struct random_position *r, uint64_t at, size_t n,
                                    uint16_t *to)
{
    enum { FILL = RNG_FILL * ADAMW_BLOCK };
    uint32_t words[4][RNG_FILL];
    uint16_t halves[FILL];
    while (n > 0) {
        size_t skip = at % ADAMW_BLOCK, count = n < FILL - skip ? n : FILL - skip;
        size_t blocks = (skip + count + ADAMW_BLOCK - 1) / ADAMW_BLOCK;
        struct rng_positions positions = {at / ADAMW_BLOCK, 1, (int)blocks};
        rng_fill(r->seed, r->purpose, r->step, &positions, words);
        for (size_t i = 0; i < blocks; i++)
            for (size_t k = 0; k < 4; k++) {
                halves[i * ADAMW_BLOCK + 2 * k] = (uint16_t)words[k][i];
                halves[i * ADAMW_BLOCK + 2 * k + 1] = (uint16_t)(words[k][i] >> 16);
            }
        memcpy(to, halves + skip, count * sizeof *to);
        at += count, to += count, n -= count;
    }
}

/* Writes the random bits of n consecutive elements, from `begin` on, to `to`. */
static inline void rounding_bits_fill(const struct random_position *r, size_t begin, size_t n,
                                      uint16_t *to)
{
    while (n > 0) {
        uint64_t run = r->run ? begin / r->run : 0, in_run = begin - run * r->run;
        size_t count = r->run && r->run - in_run < n ? (size_t)(r->run - in_run) : n;
        rounding_bits_at(r, r->position + run * r->stride + in_run, count, to);
        begin += count, to += count, n -= count;
    }
}
