/* attention_softmax.h -- exp2 of attention scores on AVX-512 integer units, two keys and 32 queries
 * at a time, while AMX tiles multiply.
 *
 * While tiles multiply, and for about a microsecond after, Intel processors issue one 512-bit f32
 * operation per cycle, and one on integers or bytes in addition.  So 2^x is computed on 16-bit
 * integers, 32 at a time.  Adding a large constant rounds x = n + f to a multiple of 2^-8 in the
 * lower half of an f32: 8 bits of n and 8 of f, which except for the last bit are the bf16
 * 2^n (1 + f).  A table holds 1 + f - 2^f; an average rounds the last bit away.
 * Units    Probs are bf16: backward 2^(score scale_log2), forward
 *          2^(score scale_log2 + 1 - SOFTMAX_HEADROOM).  They are unbiased, with an RMS error of
 *          0.20 % and a maximum of 0.9 %; rounding to bf16 alone has 0.17 % and 0.4 %.  Row sums
 *          add the rounded probs, as the matrix multiplies do, so that weights add up to 1.  Probs
 *          of a score of 0 are exact; those below 2^-127 are 0. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/panel.h"

#include <string.h>

#if defined(__AVX512VBMI__) && defined(__AVX512BF16__)
#include <immintrin.h>
#define SOFTMAX_AVX512
#endif

/* Near SOFTMAX_BASE the ulp of f32 is 2^-8. The offset is the exponent of a score of 0: the bias,
 * for 1, or one so low that scores below SOFTMAX_HEADROOM leave bit 15 clear. */
enum { SOFTMAX_HEADROOM = 24, SOFTMAX_BIAS = 127, SOFTMAX_LOW_BIAS = 128 - SOFTMAX_HEADROOM };
#define SOFTMAX_BASE 49152.0f
enum { SOFTMAX_OVERFLOW = ~0x47407FFF }; /* bits of f32 that are clear while probs are in range */
enum { SOFTMAX_HALF_ULP = 0x8000 };

/* 2^8 (1 + f - 2^f) for the first 6 bits of f, rounded so that bf16 ties, which round up, cause no
 * bias. */
static const unsigned char softmax_table[64] __attribute__((aligned(64))) = {
    0,  2,  3,  5,  5,  7,  8,  9,  10, 11, 11, 13, 13, 14, 15, 16, 16, 17, 18, 18, 19, 19,
    20, 20, 21, 21, 21, 22, 22, 22, 22, 22, 22, 23, 23, 22, 22, 22, 22, 22, 22, 21, 21, 20,
    20, 20, 19, 18, 18, 17, 16, 16, 14, 14, 13, 12, 10, 10, 8,  7,  6,  4,  3,  2};

/* Row sums of probs of 32 queries, and the OR of all scaled scores, to detect overflow. */
struct softmax_lanes {
    float scale_log2;
#if defined(SOFTMAX_AVX512)
    __m512 sum[2];
    __m512i range[2];
#else
    float sum[PANEL];
    uint32_t range[PANEL];
#endif
};

/* One block of backward: probs p from scores, and ds = p dprobs.  Both are stored as split left
 * panels, ds also as a right panel. */
struct softmax_block {
    float scale_log2;
    const float *scores, *dprobs; /* [32 keys][32 queries] */
    char *probs, *dscores, *dscores_right;
};

/* Where the rows of the pair-th two keys start in a split left panel. */
static inline size_t softmax_left_offset(size_t pair) { return pair / 8 * 1024 + pair % 8 * 128; }

#if defined(SOFTMAX_AVX512)
static inline struct softmax_lanes softmax_begin(float scale_log2)
{
    __m512i zero = _mm512_setzero_si512();
    return (struct softmax_lanes){
        scale_log2, {_mm512_setzero_ps(), _mm512_setzero_ps()}, {zero, zero}};
}

/* Scales sixteen scores; NaN stays NaN. */
static inline __m512 softmax_scale(const float *scores, __m512 scale_log2, int offset)
{
    const __m512 zero = _mm512_set1_ps(SOFTMAX_BASE);
    const __m512 base = _mm512_set1_ps(SOFTMAX_BASE + (float)offset);
    return _mm512_max_ps(zero, _mm512_fmadd_ps(_mm512_loadu_ps(scores), scale_log2, base));
}

/* exp2 of two rows, as 16 pairs of bf16. */
static inline __m512i softmax_exp2(__m512 low, __m512 high)
{
    const __m512i swap_up = _mm512_set4_epi32(0x0D0C0F0E, 0x09080B0A, 0x05040706, 0x01000302);
    const __m512i shifts =
        _mm512_set1_epi64(0x3232222212120202); /* select bits 2 to 7 of each 16 */
    __m512i x = _mm512_mask_shuffle_epi8(_mm512_castps_si512(low), 0xCCCCCCCCCCCCCCCCu,
                                         _mm512_castps_si512(high), swap_up);
    __m512i at = _mm512_multishift_epi64_epi8(shifts, x);
    __m512i correction =
        _mm512_maskz_permutexvar_epi8(0x5555555555555555u, at, _mm512_load_si512(softmax_table));
    return _mm512_avg_epu16(_mm512_subs_epu16(x, correction), _mm512_setzero_si512());
}

/* Rounds two rows of f32 to 16 pairs of bf16. */
static inline __m512i softmax_round_pair(__m512 low, __m512 high)
{
    const __m512i half = _mm512_set1_epi32(SOFTMAX_HALF_ULP);
    const __m512i swap_down = _mm512_set4_epi32(0x0F0E0F0E, 0x0B0A0B0A, 0x07060706, 0x03020302);
    __m512i a = _mm512_add_epi32(_mm512_castps_si512(low), half);
    __m512i b = _mm512_add_epi32(_mm512_castps_si512(high), half);
    return _mm512_mask_shuffle_epi8(b, 0x3333333333333333u, a, swap_down);
}

/* Probs of two keys, as the words that a k-step of a right panel holds of them. */
static inline void softmax_keys(struct softmax_lanes *s, const float *scores, void *words)
{
    const __m512 scale_log2 = _mm512_set1_ps(s->scale_log2);
    const __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3F803F80);
    for (int half = 0; half < 2; half++) {
        __m512 low = softmax_scale(scores + 16 * half, scale_log2, SOFTMAX_LOW_BIAS);
        __m512 high = softmax_scale(scores + PANEL + 16 * half, scale_log2, SOFTMAX_LOW_BIAS);
        __m512i probs = softmax_exp2(low, high);
        s->range[half] = _mm512_ternarylogic_epi32(s->range[half], _mm512_castps_si512(low),
                                                   _mm512_castps_si512(high), 0xFE); /* or */
        s->sum[half] = _mm512_dpbf16_ps(s->sum[half], (__m512bh)probs, ones);
        _mm512_storeu_si512((char *)words + half * 1024, probs);
    }
}

/* Stores the row sums; returns a bit mask of the queries whose probs overflowed. */
static inline uint32_t softmax_end(const struct softmax_lanes *s, float *sum)
{
    uint32_t overflow = 0;
    for (int half = 0; half < 2; half++) {
        _mm512_storeu_ps(sum + 16 * half, s->sum[half]);
        __mmask16 mask =
            _mm512_test_epi32_mask(s->range[half], _mm512_set1_epi32(SOFTMAX_OVERFLOW));
        overflow |= (uint32_t)mask << 16 * half;
    }
    return overflow;
}

/* Backward for the pair-th two keys. */
static inline void softmax_keys_backward(const struct softmax_block *s, size_t pair)
{
    const __m512 scale = _mm512_set1_ps(s->scale_log2);
    const float *scores = s->scores + 2 * pair * PANEL, *dprobs = s->dprobs + 2 * pair * PANEL;
    size_t left = softmax_left_offset(pair);
    char *probs = s->probs + left, *dscores = s->dscores + left;
    char *right = s->dscores_right + pair * 64;
    __m512 d[2][2];
    for (int k = 0; k < 2; k++) {
        int at = k * PANEL;
        __m512i p = softmax_exp2(softmax_scale(scores + at, scale, SOFTMAX_BIAS),
                                 softmax_scale(scores + at + 16, scale, SOFTMAX_BIAS));
        __m512i low = _mm512_slli_epi32(p, 16);
        __m512i high = _mm512_and_si512(p, _mm512_set1_epi32((int)0xFFFF0000));
        d[k][0] = _mm512_mul_ps(_mm512_castsi512_ps(low), _mm512_loadu_ps(dprobs + at));
        d[k][1] = _mm512_mul_ps(_mm512_castsi512_ps(high), _mm512_loadu_ps(dprobs + at + 16));
        _mm512_storeu_si512(probs + k * 64, p);
        _mm512_storeu_si512(dscores + k * 64, softmax_round_pair(d[k][0], d[k][1]));
    }
    for (int half = 0; half < 2; half++)
        _mm512_storeu_si512(right + half * 1024, softmax_round_pair(d[0][half], d[1][half]));
}
#else
static inline struct softmax_lanes softmax_begin(float scale_log2)
{
    return (struct softmax_lanes){.scale_log2 = scale_log2};
}

/* The scaled score, as the bits of an f32. */
static inline uint32_t softmax_scale(float score, float scale_log2, int offset)
{
    float x = score * scale_log2 + (SOFTMAX_BASE + (float)offset);
    uint32_t bits;
    if (x < SOFTMAX_BASE) x = SOFTMAX_BASE;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline bf16 softmax_exp2(uint32_t bits)
{
    uint32_t x = bits & 0xFFFF, correction = softmax_table[x >> 2 & 63];
    return (bf16)(x > correction ? (x - correction + 1) >> 1 : 0);
}

static inline uint32_t softmax_round_pair(float low, float high)
{
    uint32_t a, b;
    memcpy(&a, &low, sizeof a), memcpy(&b, &high, sizeof b);
    return (a + SOFTMAX_HALF_ULP) >> 16 | ((b + SOFTMAX_HALF_ULP) & 0xFFFF0000u);
}

/* Stores 32 pairs as words of a k-step of a right panel. */
static inline void softmax_store_pairs(const float *low, const float *high, void *words)
{
    for (size_t i = 0; i < PANEL; i++) {
        uint32_t word = softmax_round_pair(low[i], high[i]);
        memcpy((char *)words + i / 16 * 1024 + i % 16 * 4, &word, sizeof word);
    }
}

static inline void softmax_keys(struct softmax_lanes *s, const float *scores, void *words)
{
    float probs[2][PANEL];
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < PANEL; i++) {
            uint32_t bits = softmax_scale(scores[k * PANEL + i], s->scale_log2, SOFTMAX_LOW_BIAS);
            probs[k][i] = bf16_to_f32(softmax_exp2(bits));
            s->range[i] |= bits, s->sum[i] += probs[k][i];
        }
    softmax_store_pairs(probs[0], probs[1], words);
}

static inline uint32_t softmax_end(const struct softmax_lanes *s, float *sum)
{
    uint32_t overflow = 0;
    memcpy(sum, s->sum, sizeof s->sum);
    for (int i = 0; i < PANEL; i++)
        if (s->range[i] & (uint32_t)SOFTMAX_OVERFLOW) overflow |= 1u << i;
    return overflow;
}

/* Stores a row of 32 as pairs of elements i and 16 + i. */
static inline void softmax_store_split(const float *row, char *to)
{
    for (size_t i = 0; i < 16; i++) {
        uint32_t word = softmax_round_pair(row[i], row[16 + i]);
        memcpy(to + i * 4, &word, sizeof word);
    }
}

static inline void softmax_keys_backward(const struct softmax_block *s, size_t pair)
{
    const float *scores = s->scores + 2 * pair * PANEL, *dprobs = s->dprobs + 2 * pair * PANEL;
    size_t left = softmax_left_offset(pair);
    float p[2][PANEL], d[2][PANEL];
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < PANEL; i++) {
            size_t at = k * PANEL + i;
            p[k][i] =
                bf16_to_f32(softmax_exp2(softmax_scale(scores[at], s->scale_log2, SOFTMAX_BIAS)));
            d[k][i] = p[k][i] * dprobs[at];
        }
        softmax_store_split(p[k], s->probs + left + k * 64);
        softmax_store_split(d[k], s->dscores + left + k * 64);
    }
    softmax_store_pairs(d[0], d[1], s->dscores_right + pair * 64);
}
#endif
