/* rope.h -- rotary position embedding in place (Su et al. 2021, eq. 34), in Hugging Face's layout:
 * coordinate i of a head is paired with i + K/2.
 *
 * Axes     B sequences, T tokens, H heads, K head size (even).
 * Memory   x_BTHK has `stride` elements from one token to the next, so q or k can be rotated where
 *          they lie in a fused q, k, v row.  cos and sin come from rope_table.
 * Order    In f32, rounded once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>

struct rope {
    int B, T, H, K;
    int first;     /* position of the first token; rows of the tables are absolute positions */
    size_t stride; /* elements between tokens; sequences follow each other: T * stride */
    enum dtype dtype;
    bool inverse;    /* rotate back: the gradient */
    bool is_private; /* ops.h: x, of `stride` columns, where attention may be (attention.h) */
};
struct rope_io {
    void *x_BTHK;
    const float *cos_TJ, *sin_TJ; /* J = K/2 */
};

enum status rope(const struct ops *, const struct rope *, const struct rope_io *, struct queue *);

/* Llama 3.1's stretching of long wavelengths; factor 0 = none. */
struct rope_scaling {
    double factor, low_frequency_factor, high_frequency_factor;
    int original_context; /* tokens */
};

/* Fills cos and sin for positions 0..T-1 with rope_frequency's f: angle = position * f, f =
 * theta^(-2j/K), and with scaling, wavelength l = 2 pi / f: l < old/high -> f; l > old/low ->
 * f/factor; between them, with s = (old/l - low) / (high - low), (1-s) f/factor + s f.  Frequencies
 * in f32 as Transformers has them. */
double rope_frequency(int j, int K, double theta, const struct rope_scaling *scaling);
void rope_table(int T, int K, double theta, const struct rope_scaling *scaling, float *cos_TJ,
                float *sin_TJ);
