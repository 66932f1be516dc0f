// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/peak.h"

#include "base/clock.h"

#include <math.h>
#include <omp.h>

#if defined(__AVX512F__) || defined(__AMX_BF16__)
#include <immintrin.h>
#endif
#if defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Twelve chains of multiply-adds hide the latency of either unit. */
enum { CHAINS = 12 };

/* FLOPs done by one thread.  The sums are checked, so that the compiler keeps them. */
typedef double (*burst)(long rounds);

#if defined(__AVX512F__)
static double f32_burst(long rounds)
{
    __m512 sum[CHAINS], a = _mm512_set1_ps(1.0f), b = _mm512_set1_ps(1e-9f);
    for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_fmadd_ps(sum[i], a, b);
    float all = 0;
    for (int i = 0; i < CHAINS; i++) all += _mm512_reduce_add_ps(sum[i]);
    return all < 0 ? 0 : 2.0 * 16 * CHAINS * (double)rounds;
}
#else
static double f32_burst(long rounds)
{
    float sum[CHAINS][8];
    for (int i = 0; i < CHAINS; i++)
        for (int j = 0; j < 8; j++) sum[i][j] = (float)(i + j);
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++)
            for (int j = 0; j < 8; j++) sum[i][j] = sum[i][j] * 1.0f + 1e-9f;
    float all = 0;
    for (int i = 0; i < CHAINS; i++)
        for (int j = 0; j < 8; j++) all += sum[i][j];
    return all < 0 ? 0 : 2.0 * 8 * CHAINS * (double)rounds;
}
#endif

#if defined(__AMX_BF16__)
enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

static double bf16_burst(long rounds)
{
    struct {
        unsigned char palette, start_row, reserved[14];
        unsigned short row_bytes[16];
        unsigned char rows[16];
    } tiles __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < 6; i++) tiles.row_bytes[i] = 64, tiles.rows[i] = 16;
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)) return f32_burst(rounds);
    __asm__ volatile("" ::"r"(&tiles) : "memory"); /* gcc 12 reads only part of the operand */
    _tile_loadconfig(&tiles);
    for (long r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_release();
    return 4 * 2.0 * 16 * 16 * 32 * (double)rounds;
}
#elif defined(__AVX512BF16__)
static double bf16_burst(long rounds)
{
    __m512 sum[CHAINS];
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-4f), _mm512_set1_ps(1e-4f));
    for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_dpbf16_ps(sum[i], a, a);
    float all = 0;
    for (int i = 0; i < CHAINS; i++) all += _mm512_reduce_add_ps(sum[i]);
    return all < 0 ? 0 : 2.0 * 32 * CHAINS * (double)rounds;
}
#else
static double bf16_burst(long rounds) { return f32_burst(rounds); }
#endif

static double rate(burst run, int num_threads, long rounds)
{
    double flops = 0, begin = clock_monotonic_s();
#pragma omp parallel num_threads(num_threads) reduction(+ : flops)
    flops += run(rounds);
    return flops / (clock_monotonic_s() - begin);
}

double cpu_peak_flops(const struct queue *on, enum dtype dtype)
{
    enum { BURSTS = 9 };
    burst run = dtype == BF16 ? bf16_burst : f32_burst;
    double best = 0;
    rate(run, on->num_threads, 1000);                           /* starts the threads */
    for (long rounds = 1000; rounds <= 1L << 30; rounds *= 4) { /* long enough to be timed */
        double begin = clock_monotonic_s(), quickest = INFINITY;
        for (int i = 0; i < BURSTS; i++, begin = clock_monotonic_s()) {
            double now = rate(run, on->num_threads, rounds), seconds = clock_monotonic_s() - begin;
            if (now > best) best = now; /* other processes only ever take away */
            if (seconds < quickest) quickest = seconds;
        }
        if (quickest > 0.003) break;
    }
    return best;
}
