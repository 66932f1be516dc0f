/* numpy.h -- bit-exact versions of the NumPy functions that Megatron-LM's data order depends on. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

/* numpy.random.RandomState(seed): MT19937 (Matsumoto and Nishimura, 1998). */
struct numpy_random {
    uint32_t state[624];
    int used; /* words of it */
};
void numpy_random_init(struct numpy_random *r, uint32_t seed);

/* The next 32 bits. */
uint32_t numpy_random_word(struct numpy_random *r);

/* RandomState.shuffle of at most 2^32 words. */
void numpy_shuffle(struct numpy_random *r, uint32_t *values, uint64_t count);

/* numpy.random.default_rng(0).integers(1, 4096, size=count, dtype=int32): PCG64 (O'Neill, 2014). */
void numpy_mock_lengths(int32_t *lengths, size_t count);

/* numpy.sum of doubles, with NumPy's pairwise summation order. */
double numpy_sum(const double *values, size_t count);
