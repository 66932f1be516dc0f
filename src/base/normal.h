/* normal.h -- normal random numbers for whole arrays, many at a time.
 *
 * Elements 2p and 2p + 1 of a stream are radius * cos(angle) and radius * sin(angle) of one block
 * of random bits (Box-Muller), evaluated in f64 with the C library's log, sin and cos, multiplied
 * by the standard deviation and rounded to f32.  The fast path evaluates polynomials of these
 * functions with vectors; where their error could change the rounded value, the C library decides.
 * So every element has the bits that the C library gives.
 *
 * Truncation  An element beyond `limit` deviations is drawn again, from streams of its own. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/rng.h"

#include <stddef.h>

struct normal_stream {
    uint64_t seed;
    enum rng_purpose purpose;
    uint64_t stream;   /* below 2^32 */
    double std, limit; /* limit: INFINITY for none */
};

/* Writes elements [first, first + count) of the stream to w, with the threads of OpenMP. */
void normal_fill(const struct normal_stream *s, uint64_t first, size_t count, float *w);
