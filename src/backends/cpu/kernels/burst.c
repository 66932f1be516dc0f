// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"

/* Independent FMA chains: enough to hide the latency, few enough to stay in registers together with
 * the two factors. */
enum { CHAINS = 12 };

/* Volatile factors and a check of the sums keep the compiler from optimizing the loop away. */
static double f32_burst(long rounds)
{
    const volatile float factor = 1.0f, term = 1e-9f;
    const float times = factor, plus = term;
    float lanes[LANES], all = 0;
    vector sum[CHAINS], a = times - (vector){0}, b = plus - (vector){0};
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) sum[i] = a * (float)i;
    for (long r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) sum[i] = sum[i] * a + b;
#pragma GCC unroll 12
    for (int i = 1; i < CHAINS; i++) sum[0] += sum[i];
    vector_storeu(lanes, sum[0]);
    for (int j = 0; j < LANES; j++) all += lanes[j];
    return all < 0 ? 0 : 2.0 * LANES * CHAINS * (double)rounds;
}

#if defined(TILES)
static double bf16_burst(long rounds)
{
    tiles_open();
    for (long r = 0; r < rounds; r++) {
        TILE_DOT(0, 4, 6);
        TILE_DOT(1, 4, 7);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
    }
    tiles_close();
    return 4 * 2.0 * 16 * 16 * 32 * (double)rounds;
}
#elif defined(__AVX512F__)
#include <immintrin.h>

enum { DOTS = 24 };

__attribute__((target("avx512bf16"))) static double dot_burst(long rounds)
{
    __m512 sum[DOTS];
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-4f), _mm512_set1_ps(1e-4f));
#pragma GCC unroll 24
    for (int i = 0; i < DOTS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (long r = 0; r < rounds; r++)
#pragma GCC unroll 24
        for (int i = 0; i < DOTS; i++) sum[i] = _mm512_dpbf16_ps(sum[i], a, a);
#pragma GCC unroll 24
    for (int i = 1; i < DOTS; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
    return _mm512_reduce_add_ps(sum[0]) < 0 ? 0 : 2.0 * 32 * DOTS * (double)rounds;
}

static double bf16_burst(long rounds)
{
    return __builtin_cpu_supports("avx512bf16") ? dot_burst(rounds) : f32_burst(rounds);
}
#else
static double bf16_burst(long rounds) { return f32_burst(rounds); }
#endif

double KERNEL(burst)(enum dtype dtype, long rounds)
{
    return dtype == BF16 ? bf16_burst(rounds) : f32_burst(rounds);
}
