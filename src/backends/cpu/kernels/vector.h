/* vector.h -- the vector registers of the set that is compiled for; and loops over rows that the
 * compiler turns into them: conversion to and from f32, and an exponential it can inline. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX__)
#include <immintrin.h>
#endif

/* A register of f32. */
#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float vector __attribute__((vector_size(4 * LANES)));

static inline vector vector_at(const float *x)
{
    vector v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline void vector_put(float *x, vector v) { memcpy(x, &v, sizeof v); }

/* e^x within 3e-7 relative; 0 below -87 and for -inf, e^88 above.  Cody-Waite reduction by ln 2 in
 * two parts, then the Taylor polynomial of degree 6 on [-ln2/2, ln2/2]. */
static inline float vector_exp(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
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

/* e^x within 1e-5 relative, in fewer operations; 0 below -87 and for -inf, e^88 above.  The
 * integer part of x / ln 2 goes to the exponent, 2^f on [-1/2, 1/2] is a polynomial of degree 4. */
static inline float quick_exp(float x)
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

/* As exact as a result of that dtype can show: rounding to bf16 hides an error of 1e-5. */
static inline float vector_exp_for(enum dtype dtype, float x)
{
    return dtype == F32 ? vector_exp(x) : quick_exp(x);
}

/* n elements from element `at` of x, as f32. */
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

/* Whether a line of the cache, of 64 bytes, begins at x. */
static inline bool vector_is_line(const void *x) { return (uintptr_t)x % 64 == 0; }

/* A line to another, past the caches: for what is not read again soon and would be read from
 * memory only to be overwritten.  vector_stream_end before others may read it. */
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

/* 32 numbers as a line. */
static inline void vector_stream(bf16 *to, const float *from)
{
    bf16 line[32] __attribute__((aligned(64)));
    vector_store(line, 0, BF16, 32, from);
    vector_stream_line(to, line);
}

static inline void vector_stream_end(void)
{
#if defined(__AVX__)
    _mm_sfence();
#endif
}
