/* attention_soften.h -- scores to odds, two keys and 32 queries at a time, beside a processor's
 * tiles.
 *
 * While tiles are multiplied, and about a microsecond after, Intel's processors do one f32
 * operation on 16 numbers in a cycle, and one on integers or bytes beside it.  So 2^x takes as many
 * of both: a sum rounds x to a multiple of 2^-15 in the lower bits of an f32, whose bytes are moved
 * up to where the exponent is, and a polynomial stands for what the fraction is off. Units    Odds
 * are 2^(score factor - top), within 4e-6 relative, 0 below 2^-126.  From 2^64 they are wrong, as
 * they are of a NaN, and `range` says so. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/panel.h"

#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

/* y = x + SOFTEN_BASE is between 2^8 and 2^9.  Moved up by 8 bits its bits are those of 2^n (1 + f)
 * but for the exponent's offset, where n + f = x; and 2^63 (1 + 2^f - f), as bits, is what is
 * missing to 2^x and that offset. */
enum { SOFTEN_FRACTION = 0x007FFFFF, SOFTEN_ONE = 0x3F800000, SOFTEN_HALF = 0x8000 };
#define SOFTEN_BASE 448.0f
#define SOFTEN_LOW  322.0f           /* x = -126 */
enum { SOFTEN_BEYOND = 0x3C000000 }; /* bits of f32, of which those from 2^9 (x = 64) on have one */
/* 2 + 2^(g-1) - g on [1, 2], within 2.6e-6 of 2^(g-1), and within 7.5e-5. */
enum { SOFTEN_FINE = 5, SOFTEN_ROUGH = 4 };
static const float soften_fine[SOFTEN_FINE] = {2.50996422f, -0.687983974f, 0.16661338f,
                                               -0.002125211f, 0.0135341677f};
static const float soften_rough[SOFTEN_ROUGH] = {2.45213199f, -0.522229655f, -0.00800637149f,
                                                 0.078024122f};

/* Of 32 queries: SOFTEN_BASE - top, the sums of their odds, what has left the range. */
struct softening {
    float factor;
#if defined(__AVX512F__)
    __m512 base[2], sum[2];
    __m512i range[2];
#else
    float base[PANEL], sum[PANEL];
    uint32_t range[PANEL];
#endif
};

#if defined(__AVX512F__)
static inline struct softening soften_begin(float factor, const float *base)
{
    struct softening s = {.factor = factor};
    for (int half = 0; half < 2; half++) {
        s.base[half] = _mm512_loadu_ps(base + 16 * half);
        s.sum[half] = _mm512_setzero_ps();
        s.range[half] = _mm512_setzero_si512();
    }
    return s;
}

/* 2^x of y, by a polynomial of n terms; 0 where not `there`. */
static inline __m512 soften_power(__m512 y, __mmask16 there, const float *c, int n)
{
    const __m512i up = _mm512_set4_epi32(0x0E0D0C80, 0x0A090880, 0x06050480, 0x02010080);
    __m512i moved = _mm512_shuffle_epi8(_mm512_castps_si512(y), up);
    __m512 g = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        moved, _mm512_set1_epi32(SOFTEN_FRACTION), _mm512_set1_epi32(SOFTEN_ONE), 0xEA));
    __m512 v = _mm512_set1_ps(0x1p63f * c[n - 1]);
    for (int i = n - 2; i >= 0; i--) v = _mm512_fmadd_ps(v, g, _mm512_set1_ps(0x1p63f * c[i]));
    return _mm512_castsi512_ps(_mm512_maskz_add_epi32(there, _mm512_castps_si512(v), moved));
}

/* NaN of either sign is. */
static inline __mmask16 soften_there(__m512 y)
{
    return _mm512_cmp_ps_mask(y, _mm512_set1_ps(SOFTEN_LOW), _CMP_NLT_UQ);
}

static inline __m512 soften_row(struct softening *s, const float *x, int half)
{
    __m512 y = _mm512_fmadd_ps(_mm512_loadu_ps(x), _mm512_set1_ps(s->factor), s->base[half]);
    __mmask16 there = soften_there(y);
    s->range[half] =
        _mm512_mask_or_epi32(s->range[half], there, s->range[half], _mm512_castps_si512(y));
    __m512 odds = soften_power(y, there, soften_fine, SOFTEN_FINE);
    s->sum[half] = _mm512_add_ps(s->sum[half], odds);
    return odds;
}

/* Two rows of f32 as 16 pairs of bf16. */
static inline __m512i soften_pair(__m512 low, __m512 high)
{
    const __m512i half = _mm512_set1_epi32(SOFTEN_HALF);
    const __m512i down = _mm512_set4_epi32(0x0F0E0F0E, 0x0B0A0B0A, 0x07060706, 0x03020302);
    __m512i a = _mm512_add_epi32(_mm512_castps_si512(low), half);
    __m512i b = _mm512_add_epi32(_mm512_castps_si512(high), half);
    return _mm512_mask_shuffle_epi8(b, 0x3333333333333333u, a, down);
}

/* Scores of two keys to the words that a step of a right panel holds of them. */
static inline void soften_keys(struct softening *s, const float *scores, void *words)
{
    for (int half = 0; half < 2; half++) {
        __m512 low = soften_row(s, scores + 16 * half, half);
        __m512 high = soften_row(s, scores + PANEL + 16 * half, half);
        _mm512_storeu_si512((char *)words + half * 1024, soften_pair(low, high));
    }
}

/* Sums to sum[32]; which queries' odds have left the range. */
static inline uint32_t soften_end(const struct softening *s, float *sum)
{
    uint32_t beyond = 0;
    for (int half = 0; half < 2; half++) {
        _mm512_storeu_ps(sum + 16 * half, s->sum[half]);
        __mmask16 mask = _mm512_test_epi32_mask(s->range[half], _mm512_set1_epi32(SOFTEN_BEYOND));
        beyond |= (uint32_t)mask << 16 * half;
    }
    return beyond;
}

/* ---- backward ---- */

struct softening_back {
    __m512 factor, base[2];
};

static inline struct softening_back soften_back_begin(float factor, const float *base)
{
    return (struct softening_back){_mm512_set1_ps(factor),
                                   {_mm512_loadu_ps(base), _mm512_loadu_ps(base + 16)}};
}

/* Two keys' odds p from scores and ds = p dp, as rows of split left panels, and ds as the words
 * that a step of a right panel holds. */
static inline void soften_keys_back(const struct softening_back *s, const float *scores,
                                    const float *dodds, char *odds, char *dscores, char *right)
{
    __m512 d[2][2];
    for (int k = 0; k < 2; k++) {
        __m512 p[2];
        for (int half = 0; half < 2; half++) {
            int at = k * PANEL + 16 * half;
            __m512 y = _mm512_fmadd_ps(_mm512_loadu_ps(scores + at), s->factor, s->base[half]);
            __mmask16 there = soften_there(y);
            p[half] = soften_power(y, there, soften_rough, SOFTEN_ROUGH);
            d[k][half] = _mm512_mul_ps(p[half], _mm512_loadu_ps(dodds + at));
        }
        _mm512_storeu_si512(odds + k * 64, soften_pair(p[0], p[1]));
        _mm512_storeu_si512(dscores + k * 64, soften_pair(d[k][0], d[k][1]));
    }
    for (int half = 0; half < 2; half++)
        _mm512_storeu_si512(right + half * 1024, soften_pair(d[0][half], d[1][half]));
}
#else
static inline struct softening soften_begin(float factor, const float *base)
{
    struct softening s = {.factor = factor};
    memcpy(s.base, base, sizeof s.base);
    return s;
}

static inline float soften_power(float y, const float *c, int n)
{
    float g, v = 0x1p63f * c[n - 1], odds;
    uint32_t bits, moved, fraction;
    memcpy(&bits, &y, sizeof bits);
    if ((int32_t)bits < 0 || y < SOFTEN_LOW) return 0;
    moved = bits << 8, fraction = (moved & SOFTEN_FRACTION) | SOFTEN_ONE;
    memcpy(&g, &fraction, sizeof g);
    for (int k = n - 2; k >= 0; k--) v = v * g + 0x1p63f * c[k];
    memcpy(&bits, &v, sizeof bits);
    bits += moved;
    memcpy(&odds, &bits, sizeof odds);
    return odds;
}

static inline uint32_t soften_pair(float low, float high)
{
    uint32_t a, b;
    memcpy(&a, &low, sizeof a), memcpy(&b, &high, sizeof b);
    return (a + SOFTEN_HALF) >> 16 | ((b + SOFTEN_HALF) & 0xFFFF0000u);
}

static inline float soften_one(struct softening *s, float x, size_t i)
{
    float y = x * s->factor + s->base[i];
    float odds = soften_power(y, soften_fine, SOFTEN_FINE);
    uint32_t bits;
    memcpy(&bits, &y, sizeof bits);
    if (!(y < SOFTEN_LOW)) s->range[i] |= bits;
    s->sum[i] += odds;
    return odds;
}

static inline void soften_keys(struct softening *s, const float *scores, void *words)
{
    for (size_t i = 0; i < PANEL; i++) {
        float low = soften_one(s, scores[i], i), high = soften_one(s, scores[PANEL + i], i);
        uint32_t word = soften_pair(low, high);
        memcpy((char *)words + i / 16 * 1024 + i % 16 * 4, &word, sizeof word);
    }
}

static inline uint32_t soften_end(const struct softening *s, float *sum)
{
    uint32_t beyond = 0;
    memcpy(sum, s->sum, sizeof s->sum);
    for (int i = 0; i < PANEL; i++)
        if (s->range[i] & SOFTEN_BEYOND) beyond |= 1u << i;
    return beyond;
}

/* ---- backward ---- */

struct softening_back {
    float factor;
    const float *base;
};

static inline struct softening_back soften_back_begin(float factor, const float *base)
{
    return (struct softening_back){factor, base};
}

static inline void soften_words(const float *low, const float *high, char *to)
{
    for (size_t i = 0; i < 16; i++) {
        uint32_t word = soften_pair(low[i], high[i]);
        memcpy(to + i * 4, &word, sizeof word);
    }
}

static inline void soften_keys_back(const struct softening_back *s, const float *scores,
                                    const float *dodds, char *odds, char *dscores, char *right)
{
    float p[2][PANEL], d[2][PANEL];
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < PANEL; i++) {
            float y = scores[k * PANEL + i] * s->factor + s->base[i];
            p[k][i] = soften_power(y, soften_rough, SOFTEN_ROUGH);
            d[k][i] = p[k][i] * dodds[k * PANEL + i];
        }
        soften_words(p[k], p[k] + 16, odds + k * 64);
        soften_words(d[k], d[k] + 16, dscores + k * 64);
    }
    for (size_t half = 0; half < 2; half++)
        soften_words(d[0] + 16 * half, d[1] + 16 * half, right + half * 1024);
}
#endif
