/* panel_pairs.h -- building blocks that pack full k-steps of bf16 panels with AVX-512. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__AVX512F__)
#include "tensor/dtype.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>

/* stream: NT store. */
static inline void pairs_store(void *to, __m512i line, bool stream)
{
    if (stream)
        _mm512_stream_si512(to, line);
    else
        _mm512_storeu_si512(to, line);
}

/* Loads words 4 quarter to 4 quarter + 3 of 16 rows that are `stride` bytes apart, and returns them
 * transposed, as four lines of 16 words. 128-bit loads already place the quarters, which leaves two
 * rounds of unpacks. */
static inline __attribute__((always_inline)) void
pairs_load_transposed(const void *from, size_t stride, size_t quarter, __m512i lines[4])
{
    __m512i row[4], pairs[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        const char *at = (const char *)from + i * stride + 16 * quarter;
        __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)at));
        x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(at + 4 * stride)), 1);
        x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(at + 8 * stride)), 2);
        row[i] = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(at + 12 * stride)), 3);
    }
    pairs[0] = _mm512_unpacklo_epi32(row[0], row[1]);
    pairs[1] = _mm512_unpackhi_epi32(row[0], row[1]);
    pairs[2] = _mm512_unpacklo_epi32(row[2], row[3]);
    pairs[3] = _mm512_unpackhi_epi32(row[2], row[3]);
    lines[0] = _mm512_unpacklo_epi64(pairs[0], pairs[2]);
    lines[1] = _mm512_unpackhi_epi64(pairs[0], pairs[2]);
    lines[2] = _mm512_unpacklo_epi64(pairs[1], pairs[3]);
    lines[3] = _mm512_unpackhi_epi64(pairs[1], pairs[3]);
}

/* The same, stored to lines 4 quarter to 4 quarter + 3 of `to`. */
static inline void pairs_transpose(const char *from, size_t stride, size_t quarter, char *to,
                                   bool stream)
{
    __m512i lines[4];
    pairs_load_transposed(from, stride, quarter, lines);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) pairs_store(to + (4 * quarter + i) * 64, lines[i], stream);
}

/* Interleaves two rows of 32 elements into 2 lines of 16 pairs (VNNI layout). */
static inline void pairs_interleave(const bf16 *low, const bf16 *high, __m512i lines[2])
{
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m512i a = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)low + half));
        __m512i b = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)high + half));
        lines[half] = _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
    }
}
#endif
