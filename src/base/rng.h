/* rng.h -- counter-based random numbers: (seed, purpose, step, position) -> bits.
 *
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).  It is
 * stateless: the same four integers give the same bits on any rank, in any order, after any
 * resume. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

/* What the numbers are used for: each purpose has its own stream.  Checkpoints depend on the
 * values: add at the end, never renumber. */
enum rng_purpose {
    RNG_INIT = 1,   /* initial weights */
    RNG_SOURCE,     /* which source of the mixture comes next */
    RNG_SHUFFLE,    /* order of documents in a window */
    RNG_MASK,       /* masked positions */
    RNG_VALIDATION, /* which documents are held out */
    RNG_SAMPLE,     /* generation */
    RNG_TEST,
    RNG_NEURONS,   /* which neurons of a session are read */
    RNG_MOMENTS,   /* stochastic rounding of second moments */
    RNG_SYNTHETIC, /* synthetic spike counts */
    RNG_PACKING,   /* order of packed rows */
    RNG_DIFFUSION, /* mask probability of a row */
    RNG_GRADIENTS, /* stochastic rounding of gradients */
};

struct rng_block {
    uint32_t bits[4];
};

struct rng_block rng_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3);
struct rng_block rng_bits(uint64_t seed, enum rng_purpose purpose, uint64_t step,
                          uint64_t position);
/* Many blocks at once, with vectors: bits[k][i] is word k of the block at position
 * first + i * stride. */
enum { RNG_FILL = 128 };
struct rng_positions {
    uint64_t first, stride;
    int count; /* at most RNG_FILL */
};
void rng_fill(uint64_t seed, enum rng_purpose purpose, uint64_t step,
              const struct rng_positions *at, uint32_t bits[4][RNG_FILL]);

/* Uniform in [0, 1) with 53 bits. */
double rng_uniform(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint64_t position);
/* Standard normal (Box-Muller on 32-bit halves). */
double rng_normal(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint64_t position);
/* Uniform in [0, below), below > 0; multiply-shift, bias under 2^-32 for below < 2^32. */
uint64_t rng_below(uint64_t below, uint64_t seed, enum rng_purpose purpose, uint64_t step,
                   uint64_t position);

/* A hash of 64 bits: the first output of SplitMix64 (Steele et al. 2014) with this state. */
static inline uint64_t rng_mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}
