/* rope.h -- rotary position embedding in place (Su et al. 2021, eq. 34), in Hugging Face's
 * layout: coordinate j of a head is paired with j + J.  Coordinates from 2 J on stay as they are
 * (partial rotary embedding).
 *
 * Axes     B sequences, T tokens, H heads, K head size, J rotary pairs of a head (at most K/2).
 * Memory   x_BTHK has `stride` elements from one token to the next, so q or k can be rotated in
 *          place in a fused QKV row.  cos and sin come from rope_table.
 * Order    In f32, rounded once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rope {
    int B, T, H, K, J;
    int first;     /* position of the first token: its row in the tables */
    size_t stride; /* elements from one token to the next; a sequence has T * stride */
    enum dtype dtype;
    bool inverse;   /* rotates back: backward */
    bool is_packed; /* x, of `stride` columns, is packed (ops.h); requires attention_can_pack */
};
struct rope_io {
    void *x_BTHK;
    const float *cos_TJ, *sin_TJ;
    const int32_t *positions_BT; /* NULL: first, first + 1, ... of each sequence */
};

/* positions_BT holds the row of the tables of each token; it requires that x is not packed.
 * SHAPE: a size below 1, more pairs than a head has, a negative position or a short stride. */
enum status rope(const struct ops *, const struct rope *, const struct rope_io *, struct queue *);

/* RoPE scaling: how frequencies f = theta^(-j/J) change for rows longer than those of the first
 * training.  In the formulas old = original_context:
 *   llama3   With wavelength l = 2 pi / f: l < old/high gives f; l > old/low gives f/factor; in
 *            between, with s = (old/l - low) / (high - low), (1-s) f/factor + s f.
 *   linear   f/factor: position interpolation (Chen et al. 2023).
 *   dynamic  In rows of T > old tokens, theta grows by (factor T/old - (factor-1))^(J/(J-1)): NTK.
 *   yarn     r(j) f/factor + (1 - r(j)) f (Peng et al. 2023, sec. 3.2), where r rises linearly
 *            from 0 to 1 between the pairs that turn beta_fast and beta_slow times in old tokens,
 *            rounded down and up to whole pairs; cos and sin times attention_factor.
 *   longrope f/factors[j] (Ding et al. 2024): in rows of T > old tokens the long factors, else the
 *            short ones; cos and sin times attention_factor. */
#define ROPE_METHODS(X) X(llama3) X(linear) X(dynamic) X(yarn) X(longrope)
enum { ROPE_FACTORS = 128 }; /* pairs of a head, at most, with longrope */
enum rope_method {
#define ROPE_METHOD(name) ROPE_##name,
    ROPE_METHODS(ROPE_METHOD)
#undef ROPE_METHOD
};
struct rope_scaling {
    double factor; /* at least 1; 0: none, and the other fields are 0, too */
    double low_frequency_factor, high_frequency_factor; /* llama3 */
    int original_context;                               /* tokens; not of linear */
    enum rope_method method;
    double beta_fast, beta_slow; /* yarn */
    /* yarn; 0: 1 + ln(factor) / 10.  longrope; 0: sqrt(1 + ln(factor) / ln(old)) */
    double attention_factor;
    int num_factors; /* longrope: J */
    double short_factors[ROPE_FACTORS], long_factors[ROPE_FACTORS];
};
/* As config.json names it: llama3, linear, dynamic, yarn, longrope; without scaling,
 * default. */
const char *rope_method_name(const struct rope_scaling *);
bool rope_scaling_equals(const struct rope_scaling *, const struct rope_scaling *);
/* Whether rows of a and of b tokens have the same frequencies. */
bool rope_scaling_agrees(const struct rope_scaling *, int a, int b);
/* What cos and sin are multiplied by. */
double rope_attention_factor(const struct rope_scaling *);
/* CONFIG: a field is out of range. */
enum status rope_scaling_check(const struct rope_scaling *);

struct rope_angles {
    int J; /* rotary pairs of a head; dynamic: above 1 */
    double theta;
    const struct rope_scaling *scaling; /* NULL: none */
    int tokens;                         /* T of a row, for dynamic and longrope */
};
/* f of pair j. */
double rope_frequency(int j, const struct rope_angles *angles);
/* Fills cos and sin of position * f for positions [0, T) of rows of T tokens, with f rounded to f32
 * as in Transformers. */
void rope_table(int T, const struct rope_angles *angles, float *cos_TJ, float *sin_TJ);
