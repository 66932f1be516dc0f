/* panel_multiply.c (cpu) -- the GEMM micro-kernels: one row panel times one column panel.
 *
 * AMX: 2 x 2 tiles of 16 x 16.  AVX-512 with bf16: 8 rows x 32 columns of accumulators in
 * registers, pairs of A broadcast to VDPBF16PS.  Else f32: 8 rows x 2 vectors, 4 rows where the ISA
 * has 16 registers. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"

#include <string.h>

#if defined(TILES)
static void multiply_bf16(size_t steps, struct left_panel left, const char *right, float *acc,
                          bool accumulate)
{
    enum { STRIDE = PANEL * sizeof(float) };
    if (accumulate) {
        TILE_LOAD(0, acc, STRIDE);
        TILE_LOAD(1, acc + 16, STRIDE);
        TILE_LOAD(2, acc + MICRO_TILE_LOWER, STRIDE);
        TILE_LOAD(3, acc + MICRO_TILE_LOWER + 16, STRIDE);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    const char *rows = left.at;
    for (size_t step = 0; step < steps; step++, rows += left.step, right += KSTEP_BYTES) {
        TILE_STREAM(4, rows, left.row);
        TILE_LOAD(6, right, 64);
        TILE_DOT(0, 4, 6);
        TILE_LOAD(7, right + 1024, 64);
        TILE_DOT(1, 4, 7);
        TILE_STREAM(5, rows + left.half, left.row);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
    }
    TILES_STORE(acc);
}

enum panel_kind KERNEL(panel_kind)(void) { return PANEL_BF16; }

#elif defined(__AVX512F__)
#include <immintrin.h>

enum { DOT_ROWS = 8 };

__attribute__((target("avx512bf16"))) static void
multiply_bf16(size_t steps, struct left_panel left, const char *right, float *acc, bool accumulate)
{
    for (size_t row = 0; row < PANEL; row += DOT_ROWS) {
        const char *rows = (const char *)left.at + row / 16 * left.half + row % 16 * left.row;
        const char *columns = right;
        float *out = acc + row * PANEL;
        __m512 c[DOT_ROWS][2];
        for (int i = 0; i < DOT_ROWS; i++)
            for (int j = 0; j < 2; j++)
                c[i][j] =
                    accumulate ? _mm512_loadu_ps(out + i * PANEL + 16 * j) : _mm512_setzero_ps();
        for (size_t step = 0; step < steps; step++, rows += left.step, columns += 2048)
            for (int pair = 0; pair < 16; pair++) {
                __m512bh b0 = (__m512bh)_mm512_loadu_si512(columns + pair * 64);
                __m512bh b1 = (__m512bh)_mm512_loadu_si512(columns + 1024 + pair * 64);
                for (size_t i = 0; i < DOT_ROWS; i++) {
                    int a_pair;
                    memcpy(&a_pair, rows + i * left.row + pair * 4, sizeof a_pair);
                    __m512bh a = (__m512bh)_mm512_set1_epi32(a_pair);
                    c[i][0] = _mm512_dpbf16_ps(c[i][0], a, b0);
                    c[i][1] = _mm512_dpbf16_ps(c[i][1], a, b1);
                }
            }
        for (int i = 0; i < DOT_ROWS; i++)
            for (int j = 0; j < 2; j++) _mm512_storeu_ps(out + i * PANEL + 16 * j, c[i][j]);
    }
}

/* On Intel processors VDPBF16PS takes twice as long as the f32 FMAs it replaces. */
enum panel_kind KERNEL(panel_kind)(void)
{
    return __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel") ? PANEL_BF16
                                                                              : PANEL_F32;
}

#else
#define NO_BF16
enum panel_kind KERNEL(panel_kind)(void) { return PANEL_F32; }
#endif

/* Each group of rows prefetches its part of the next panel, a cache line at every other k. */
static void multiply_f32(size_t steps, struct left_panel left, const float *right, float *acc,
                         bool accumulate)
{
    enum { ROWS = LANES == 16 ? 8 : 4, COLUMNS = 2 * LANES, GROUPS = PANEL / ROWS, LINE = 64 };
    const size_t depth = steps * PANEL, part = steps * panel_step_bytes(PANEL_F32) / GROUPS;
    for (size_t row = 0; row < PANEL; row += ROWS)
        for (size_t column = 0; column < PANEL; column += COLUMNS) {
            const float *a = (const float *)left.at + row, *b = right + column;
            const char *next = (const char *)(left.next ? left.next : left.at) + row / ROWS * part;
            float *out = acc + row * PANEL + column;
            vector c[ROWS][2] = {0};
            if (accumulate)
                for (int i = 0; i < ROWS; i++)
                    for (int j = 0; j < 2; j++) c[i][j] = vector_loadu(out + i * PANEL + j * LANES);
            for (size_t k = 0; k < depth; k++, a += PANEL, b += PANEL) {
                vector b0 = vector_loadu(b), b1 = vector_loadu(b + LANES);
                if (k * LINE < 2 * part) __builtin_prefetch(next + k / 2 * LINE);
                for (int i = 0; i < ROWS; i++) c[i][0] += a[i] * b0, c[i][1] += a[i] * b1;
            }
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < 2; j++) vector_storeu(out + i * PANEL + j * LANES, c[i][j]);
        }
}

void KERNEL(panel_multiply)(enum panel_kind kind, size_t steps, struct left_panel left,
                            const void *right, float *acc, bool accumulate)
{
#if !defined(NO_BF16)
    if (kind == PANEL_BF16) {
        multiply_bf16(steps, left, right, acc, accumulate);
        return;
    }
#endif
    BUG_IF(kind != PANEL_F32);
    multiply_f32(steps, left, right, acc, accumulate);
}
