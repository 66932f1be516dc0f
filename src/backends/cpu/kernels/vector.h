/* vector.h -- SIMD registers of the ISA that is compiled for; conversion of rows to and from f32,
 * and an exponential that the compiler can inline and vectorize. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/dtype.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX__)
#include <immintrin.h>
#endif

/* One SIMD register of f32. */
#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float vector __attribute__((vector_size(4 * LANES)));

static inline vector vector_loadu(const float *x)
{
    vector v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline void vector_storeu(float *x, vector v) { memcpy(x, &v, sizeof v); }

/* e^x within 3e-7 relative; 0 below -87 and for -inf, e^88 above 88.  Cody-Waite reduction by ln 2
 * in two parts, then the Taylor polynomial of degree 6 on [-ln2/2, ln2/2]. */
static inline float vector_exp(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float clamped = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = clamped * 1.44269504f + magic - magic;
    float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.0f ? 0.0f : p * power;
}

/* e^x within 1e-5 relative, with fewer operations; 0 below -87 and for -inf, e^88 above 88.  The
 * integer part of x / ln 2 goes to the exponent; 2^f on [-1/2, 1/2] is a polynomial of degree 4. */
static inline float vector_fast_exp(float x)
{
    const float magic = 12582912.0f;
    float clamped = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float y = clamped * 1.44269504f, n = y + magic - magic, f = y - n;
    float p = 9.58285308e-3f;
    p = p * f + 5.59064246e-2f;
    p = p * f + 2.40240986e-1f;
    p = p * f + 6.93124193e-1f;
    p = p * f + 1.0f;
    uint32_t bits;
    memcpy(&bits, &p, sizeof bits);
    bits += (uint32_t)(int32_t)n << 23;
    memcpy(&p, &bits, sizeof p);
    return x < -87.0f ? 0.0f : p;
}

/* As exact as a result of that dtype can represent: rounding to bf16 hides an error of 1e-5. */
static inline float vector_exp_for(enum dtype dtype, float x)
{
    return dtype == F32 ? vector_exp(x) : vector_fast_exp(x);
}

/* Converts n elements from element `at` of x to f32. */
static inline void vector_load(const void *x, size_t at, enum dtype dtype, size_t n, float *to)
{
    if (dtype == F32) {
        memcpy(to, (const float *)x + at, n * sizeof *to);
        return;
    }
    const bf16 *from = (const bf16 *)x + at;
    for (size_t i = 0; i < n; i++) to[i] = bf16_to_f32(from[i]);
}

static inline void vector_store(void *x, size_t at, enum dtype dtype, size_t n, const float *from)
{
    if (dtype == F32) {
        memcpy((float *)x + at, from, n * sizeof *from);
        return;
    }
    bf16 *to = (bf16 *)x + at;
    for (size_t i = 0; i < n; i++) to[i] = bf16_from_f32(from[i]);
}

/* Explicit SIMD, for loops that the compiler does not vectorize well.  They load a register of
 * LANES elements, or fewer at a row's end, compute, and store it. */

typedef int32_t vector_bits __attribute__((vector_size(4 * LANES)));
typedef uint32_t vector_words __attribute__((vector_size(4 * LANES)));
typedef bf16 vector_halves __attribute__((vector_size(2 * LANES)));

static inline vector vector_broadcast(float x) { return x - (vector){0}; }

/* Per lane: yes where the mask is all ones, no where it is 0. */
static inline vector vector_select(vector_bits mask, vector yes, vector no)
{
    return (vector)((mask & (vector_bits)yes) | (~mask & (vector_bits)no));
}

/* Where a lane of either is NaN: b. */
static inline vector vector_max(vector a, vector b)
{
#if defined(__AVX512F__)
    return (vector)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (vector)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vector_select(a > b, a, b);
#endif
}
static inline vector vector_min(vector a, vector b)
{
#if defined(__AVX512F__)
    return (vector)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (vector)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vector_select(a < b, a, b);
#endif
}

/* x y + z, rounded once where the ISA has FMA.  Of a sum of two products the compiler fuses either,
 * in a loop's body and in its tail perhaps not the same one; this names it. */
static inline vector vector_fma(vector x, vector y, vector z)
{
#if defined(__AVX512F__)
    return (vector)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined(__FMA__)
    return (vector)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#elif defined(__FP_FAST_FMAF)
    for (int i = 0; i < LANES; i++) z[i] = fmaf(x[i], y[i], z[i]);
    return z;
#else
    return x * y + z;
#endif
}

/* Prefetches the cache line of element `at`, which may be out of bounds, to L2.  The hardware
 * prefetcher loses short rows and misses on their first lines; single prefetches interleaved with
 * other work are the fastest. */
static inline void vector_prefetch(const void *x, size_t at, enum dtype dtype)
{
    __builtin_prefetch((const char *)x + at * dtype_bytes(dtype), 0, 2);
}

/* bf16 to f32, and the upper halves of words: gcc 12 does not find these instructions. */
static inline vector vector_widen(vector_halves x)
{
#if defined(__AVX512F__)
    return (vector)((vector_words)_mm512_cvtepu16_epi32((__m256i)x) << 16);
#elif defined(__AVX2__)
    return (vector)((vector_words)_mm256_cvtepu16_epi32((__m128i)x) << 16);
#else
    return (vector)(__builtin_convertvector(x, vector_words) << 16);
#endif
}
static inline vector_halves vector_upper(vector_words x)
{
#if defined(__AVX512BW__)
    const __m512i odd = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1,
                                         31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return (vector_halves)_mm512_castsi512_si256(_mm512_permutexvar_epi16(odd, (__m512i)x));
#elif defined(__AVX2__)
    const __m256i odd = _mm256_set_epi8(15, 14, 11, 10, 7, 6, 3, 2, 15, 14, 11, 10, 7, 6, 3, 2, 15,
                                        14, 11, 10, 7, 6, 3, 2, 15, 14, 11, 10, 7, 6, 3, 2);
    __m256i pairs = _mm256_shuffle_epi8((__m256i)x, odd);
    return (vector_halves)_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 8));
#else
    return __builtin_convertvector(x >> 16, vector_halves);
#endif
}

/* bf16_from_f32 per lane; the result is in the upper halves. */
static inline vector_words vector_round(vector v)
{
    vector_words bits = (vector_words)v, up = bits + 0x7FFFu + (bits >> 16 & 1);
#if defined(__AVX512F__)
    __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    __m512i quiet = _mm512_set1_epi32(0x400000);
    return (vector_words)_mm512_mask_or_epi32((__m512i)up, is_nan, (__m512i)bits, quiet);
#else
    return (vector_words)vector_select(v != v, (vector)(bits | 0x400000u), (vector)up);
#endif
}

/* The first n elements of x, at most LANES; the other lanes are 0. */
static inline vector vector_load_first(const float *x, size_t n)
{
#if defined(__AVX512F__)
    return (vector)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), x);
#elif defined(__AVX2__)
    const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return (vector)_mm256_maskload_ps(x, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
#else
    vector v = {0};
    memcpy(&v, x, n * sizeof *x);
    return v;
#endif
}

/* Loads n elements from element `at` of x, at most LANES, as f32; the other lanes are 0. */
static inline vector vector_get(const void *x, size_t at, enum dtype dtype, size_t n)
{
    if (dtype == F32) {
        vector v = {0};
        memcpy(&v, (const float *)x + at, n < LANES ? n * sizeof(float) : sizeof v);
        return v;
    }
    vector_halves halves = {0};
    memcpy(&halves, (const bf16 *)x + at, n < LANES ? n * sizeof(bf16) : sizeof halves);
    return vector_widen(halves);
}

/* bf16_from_f32 per lane; VCVTNEPS2BF16, where available, flushes subnormals to 0. */
static inline vector_halves vector_to_bf16(vector v)
{
#if defined(__AVX512BF16__)
    __m256bh halves = _mm512_cvtneps_pbh((__m512)v);
    vector_halves to;
    memcpy(&to, &halves, sizeof to);
    return to;
#else
    return vector_upper(vector_round(v));
#endif
}

/* Stores the first n lanes of v. */
static inline void vector_set(void *x, size_t at, enum dtype dtype, size_t n, vector v)
{
    if (dtype == F32) {
        memcpy((float *)x + at, &v, n < LANES ? n * sizeof(float) : sizeof v);
        return;
    }
    vector_halves halves = vector_to_bf16(v);
    memcpy((bf16 *)x + at, &halves, n < LANES ? n * sizeof(bf16) : sizeof halves);
}

/* Two registers with 2 LANES consecutive elements.  For BF16 these are the even and the odd
 * elements: splitting takes half the instructions, and elementwise code does not depend on the
 * order. */
struct vectors {
    vector a, b;
};

static inline struct vectors vector_get_two(const void *x, size_t at, enum dtype dtype)
{
    vector_words words;
    if (dtype == F32)
        return (struct vectors){vector_get(x, at, F32, LANES),
                                vector_get(x, at + LANES, F32, LANES)};
    memcpy(&words, (const bf16 *)x + at, sizeof words);
    return (struct vectors){(vector)(words << 16), (vector)(words & 0xFFFF0000u)};
}

/* The index of element i if a row of n is stored as the registers of vector_get_two, one after the
 * other, as far as the row fills pairs of registers. */
static inline size_t vectors_index(enum dtype dtype, size_t i, size_t n)
{
    size_t begin = i / (2 * LANES) * 2 * LANES, at = i - begin;
    if (dtype == F32 || begin + 2 * LANES > n) return i;
    return begin + at / 2 + at % 2 * LANES;
}

/* Converts a row of n elements to f32 in the order of vector_get_two; what is left of its last
 * register is 0. */
static inline void vector_load_row(const void *x, size_t at, enum dtype dtype, size_t n, float *to)
{
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        struct vectors v = vector_get_two(x, at + i, dtype);
        vector_storeu(to + i, v.a), vector_storeu(to + i + LANES, v.b);
    }
    for (; i < n; i += LANES)
        vector_storeu(to + i, vector_get(x, at + i, dtype, n - i < LANES ? n - i : LANES));
}

static inline void vector_set_two(void *x, size_t at, enum dtype dtype, struct vectors v)
{
    if (dtype == F32) {
        vector_set(x, at, F32, LANES, v.a);
        vector_set(x, at + LANES, F32, LANES, v.b);
        return;
    }
#if defined(__AVX512BF16__)
    const __m512i in_turn =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512bh halves = _mm512_cvtne2ps_pbh((__m512)v.b, (__m512)v.a);
    __m512i words;
    memcpy(&words, &halves, sizeof words);
    words = _mm512_permutexvar_epi16(in_turn, words);
#else
    vector_words words = vector_round(v.a) >> 16 | (vector_round(v.b) & 0xFFFF0000u);
#endif
    memcpy((bf16 *)x + at, &words, sizeof words);
}

/* v rounded to that dtype, as f32. */
static inline vector vector_round_to(enum dtype dtype, vector v)
{
    if (dtype == F32) return v;
#if defined(__AVX512BF16__)
    return vector_widen(vector_to_bf16(v));
#else
    return (vector)(vector_round(v) & 0xFFFF0000u);
#endif
}

static inline vector vector_sqrt(vector x)
{
#if defined(__AVX512F__)
    return (vector)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX__)
    return (vector)_mm256_sqrt_ps((__m256)x);
#else
    for (int i = 0; i < LANES; i++) x[i] = sqrtf(x[i]);
    return x;
#endif
}

/* Adds all lanes: neighbors first, then pairs of them. */
static inline float vector_reduce_sum(vector v)
{
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) v[i] = v[2 * i] + v[2 * i + 1];
    return v[0];
}

/* The sums of neighboring lanes: those of a, then those of b. */
static inline vector vector_add_neighbors(vector a, vector b)
{
#if defined(__AVX512F__)
    const __m512i even =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return (vector)_mm512_permutex2var_ps((__m512)a, even, (__m512)b) +
           (vector)_mm512_permutex2var_ps((__m512)a, odd, (__m512)b);
#elif defined(__AVX2__)
    __m256d sums = _mm256_castps_pd(_mm256_hadd_ps((__m256)a, (__m256)b));
    return (vector)_mm256_castpd_ps(_mm256_permute4x64_pd(sums, 0xD8));
#else
    vector sums;
    for (int i = 0; i < LANES / 2; i++)
        sums[i] = a[2 * i] + a[2 * i + 1], sums[i + LANES / 2] = b[2 * i] + b[2 * i + 1];
    return sums;
#endif
}
/* Lane i is the sum of all lanes of v[i], in the order of vector_reduce_sum; changes v. */
static inline vector vector_reduce_sums(vector v[LANES])
{
    for (int n = LANES; n > 1; n /= 2)
        for (int i = 0; i < n / 2; i++) v[i] = vector_add_neighbors(v[2 * i], v[2 * i + 1]);
    return v[0];
}
static inline float vector_reduce_max(vector v)
{
    float max = v[0];
    for (int i = 1; i < LANES; i++) max = v[i] > max ? v[i] : max;
    return max;
}

/* p * 2^n for integral n within the exponent range of f32. */
static inline vector vector_scalef(vector p, vector n)
{
    return (vector)((vector_words)p +
                    ((vector_words) __builtin_convertvector(n, vector_bits) << 23));
}

/* 2^y within 1e-5 relative; 0 far below -126 and for -inf, close to the largest f32 above 127. */
static inline vector vector_fast_exp2(vector y)
{
#if defined(__AVX512DQ__)
    /* the fraction of y, in [0, 1): needs no rounding of y and no clamping */
    vector f = (vector)_mm512_reduce_ps((__m512)y, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vector p = vector_broadcast(1.342668429e-2f);
    p = p * f + 5.224247419e-2f;
    p = p * f + 2.412802048e-1f;
    p = p * f + 6.930448449e-1f;
    p = p * f + 1.0f;
    return (vector)_mm512_scalef_ps((__m512)p, (__m512)y);
#else
    const float magic = 12582912.0f; /* as in vector_fast_exp */
    vector held = vector_min(vector_broadcast(127.0f), vector_max(vector_broadcast(-126.0f), y));
    vector n = held + magic - magic, f = held - n;
    vector p = vector_broadcast(9.58285308e-3f);
    p = p * f + 5.59064246e-2f;
    p = p * f + 2.40240986e-1f;
    p = p * f + 6.93124193e-1f;
    p = p * f + 1.0f;
    return vector_select(y < -126.0f, vector_broadcast(0), vector_scalef(p, n));
#endif
}

/* vector_exp of each lane. */
static inline vector vector_exact_exp(vector x)
{
    const float magic = 12582912.0f;
    vector held = vector_min(vector_broadcast(88.0f), vector_max(vector_broadcast(-87.0f), x));
    vector n = held * 1.44269504f + magic - magic;
    vector r = held - n * 0.693359375f + n * 2.12194440e-4f;
    vector p = vector_broadcast(1.0f / 720);
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return vector_select(x < -87.0f, vector_broadcast(0), vector_scalef(p, n));
}

/* e^x, as exact as a result of that dtype can represent. */
static inline vector vector_exps(enum dtype dtype, vector x)
{
    return dtype == F32 ? vector_exact_exp(x) : vector_fast_exp2(x * 1.44269504f);
}

/* 1 / (1 + e^-x), equally exact. */
static inline vector vector_sigmoid(enum dtype dtype, vector x)
{
    if (dtype == F32) return 1.0f / (1.0f + vector_exact_exp(-x));
    vector y = x * -1.44269504f;
#if defined(__AVX512F__)
    vector d = 1.0f + vector_fast_exp2(vector_min(vector_broadcast(126.0f), y)); /* stays finite */
    vector approx =
        (vector)_mm512_rcp14_ps((__m512)d); /* within 2^-14; one Newton step makes it 2^-28 */
    return approx * (2.0f - d * approx);
#else
    return 1.0f / (1.0f + vector_fast_exp2(y));
#endif
}

/* Whether x is aligned to a cache line, 64 bytes. */
static inline bool vector_is_aligned(const void *x) { return (uintptr_t)x % 64 == 0; }

/* Non-temporal (NT) store of one cache line, for data that is not read again soon: it saves the
 * read for ownership.  Needs a vector_stream_fence before others read it. */
static inline void vector_stream_line(void *to, const void *line)
{
#if defined(__AVX512F__)
    _mm512_stream_si512(to, _mm512_load_si512(line));
#elif defined(__AVX__)
    for (int i = 0; i < 2; i++)
        _mm256_stream_si256((__m256i *)to + i, _mm256_load_si256((const __m256i *)line + i));
#else
    memcpy(to, line, 64);
#endif
}

/* 32 elements as one line. */
static inline void vector_stream_bf16(bf16 *to, const float *from)
{
    bf16 line[32] __attribute__((aligned(64)));
    vector_store(line, 0, BF16, 32, from);
    vector_stream_line(to, line);
}

static inline void vector_stream_fence(void)
{
#if defined(__AVX__)
    _mm_sfence();
#endif
}
