/* rope.h -- rotary position embedding in place (Su et al. 2021, eq. 34), in Hugging Face's
 * layout: coordinate i of a head is paired with i + K/2.
 *
 * Axes     B sequences, T tokens, H heads, K head size (even).
 * Memory   x_BTHK has `stride` elements from one token to the next, so q or k can be rotated in
 *          place in a fused QKV row.  cos and sin come from rope_table.
 * Order    In f32, rounded once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>

struct rope {
    int B, T, H, K;
    int first;     /* position of the first token: its row in the tables */
    size_t stride; /* elements from one token to the next; a sequence has T * stride */
    enum dtype dtype;
    bool inverse;   /* rotates back: backward */
    bool is_packed; /* x, of `stride` columns, is packed (ops.h); requires attention_can_pack */
};
struct rope_io {
    void *x_BTHK;
    const float *cos_TJ, *sin_TJ; /* J = K/2 */
};

/* SHAPE: a size below 1, an odd K, a negative position or a short stride. */
enum status rope(const struct ops *, const struct rope *, const struct rope_io *, struct queue *);

/* RoPE scaling of Llama 3.1, which stretches long wavelengths; factor 0: none. */
struct rope_scaling {
    double factor, low_frequency_factor, high_frequency_factor;
    int original_context; /* tokens */
};

/* f = theta^(-2j/K).  With scaling, wavelength l = 2 pi / f and old = original_context: l <
 * old/high gives f; l > old/low gives f/factor; in between, with s = (old/l - low) / (high - low),
 * (1-s) f/factor + s f. */
double rope_frequency(int j, int K, double theta, const struct rope_scaling *scaling);
struct rope_angles {
    int K; /* head size */
    double theta;
    const struct rope_scaling *scaling; /* NULL: none */
};
/* Fills cos and sin of position * f for positions [0, T), with f rounded to f32 as in
 * Transformers. */
void rope_table(int T, const struct rope_angles *angles, float *cos_TJ, float *sin_TJ);
