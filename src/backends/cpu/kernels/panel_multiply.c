/* panel_multiply.c (cpu) -- the inner loop of every product: one panel of rows meets one of
 * columns.
 *
 * AMX: 2 x 2 tiles.  AVX-512 with bf16: 8 rows of 32 columns in registers, a pair of A broadcast.
 * Else f32: 8 rows of two vectors, 4 where there are 16 registers. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"

#include <string.h>

#if defined(TILES)
static void multiply_pairs(size_t steps, struct left_panel left, const char *right, float *sums,
                           bool accumulate)
{
    enum { STRIDE = PANEL * sizeof(float) };
    if (accumulate) {
        TILE_LOAD(0, sums, STRIDE);
        TILE_LOAD(1, sums + 16, STRIDE);
        TILE_LOAD(2, sums + LOWER, STRIDE);
        TILE_LOAD(3, sums + LOWER + 16, STRIDE);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    const char *rows = left.at;
    for (size_t step = 0; step < steps; step++, rows += left.step, right += STEP) {
        TILE_STREAM(4, rows, left.row);
        TILE_LOAD(6, right, 64);
        TILE_DOT(0, 4, 6);
        TILE_LOAD(7, right + 1024, 64);
        TILE_DOT(1, 4, 7);
        TILE_STREAM(5, rows + left.half, left.row);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
    }
    TILES_STORE(sums);
}

enum panel_kind KERNEL(panel_kind)(void) { return PAIRS; }

#elif defined(__AVX512F__)
#include <immintrin.h>

enum { DOT_ROWS = 8 };

__attribute__((target("avx512bf16"))) static void multiply_pairs(size_t steps,
                                                                 struct left_panel left,
                                                                 const char *right, float *sums,
                                                                 bool accumulate)
{
    for (size_t row = 0; row < PANEL; row += DOT_ROWS) {
        const char *rows = (const char *)left.at + row / 16 * left.half + row % 16 * left.row;
        const char *columns = right;
        float *out = sums + row * PANEL;
        __m512 sum[DOT_ROWS][2];
        for (int i = 0; i < DOT_ROWS; i++)
            for (int j = 0; j < 2; j++)
                sum[i][j] =
                    accumulate ? _mm512_loadu_ps(out + i * PANEL + 16 * j) : _mm512_setzero_ps();
        for (size_t step = 0; step < steps; step++, rows += left.step, columns += 2048)
            for (int pair = 0; pair < 16; pair++) {
                __m512bh b0 = (__m512bh)_mm512_loadu_si512(columns + pair * 64);
                __m512bh b1 = (__m512bh)_mm512_loadu_si512(columns + 1024 + pair * 64);
                for (size_t i = 0; i < DOT_ROWS; i++) {
                    int both;
                    memcpy(&both, rows + i * left.row + pair * 4, sizeof both);
                    __m512bh a = (__m512bh)_mm512_set1_epi32(both);
                    sum[i][0] = _mm512_dpbf16_ps(sum[i][0], a, b0);
                    sum[i][1] = _mm512_dpbf16_ps(sum[i][1], a, b1);
                }
            }
        for (int i = 0; i < DOT_ROWS; i++)
            for (int j = 0; j < 2; j++) _mm512_storeu_ps(out + i * PANEL + 16 * j, sum[i][j]);
    }
}

/* Intel's processors take twice the time of f32 for a bf16 product outside AMX. */
enum panel_kind KERNEL(panel_kind)(void)
{
    return __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel") ? PAIRS : FLOATS;
}

#else
#define NO_PAIRS
enum panel_kind KERNEL(panel_kind)(void) { return FLOATS; }
#endif

static void multiply_floats(size_t steps, const float *left, const float *right, float *sums,
                            bool accumulate)
{
    enum { ROWS = LANES == 16 ? 8 : 4, COLUMNS = 2 * LANES };
    for (int row = 0; row < PANEL; row += ROWS)
        for (int column = 0; column < PANEL; column += COLUMNS) {
            const float *a = left + row, *b = right + column;
            float *out = sums + row * PANEL + column;
            vector sum[ROWS][2] = {0};
            if (accumulate)
                for (int i = 0; i < ROWS; i++)
                    for (int j = 0; j < 2; j++) sum[i][j] = vector_at(out + i * PANEL + j * LANES);
            for (size_t k = 0; k < steps * PANEL; k++, a += PANEL, b += PANEL) {
                vector b0 = vector_at(b), b1 = vector_at(b + LANES);
                for (int i = 0; i < ROWS; i++) sum[i][0] += a[i] * b0, sum[i][1] += a[i] * b1;
            }
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < 2; j++) vector_put(out + i * PANEL + j * LANES, sum[i][j]);
        }
}

void KERNEL(panel_multiply)(enum panel_kind kind, size_t steps, struct left_panel left,
                            const void *right, float *sums, bool accumulate)
{
#if !defined(NO_PAIRS)
    if (kind == PAIRS) {
        multiply_pairs(steps, left, right, sums, accumulate);
        return;
    }
#endif
    BUG_IF(kind != FLOATS);
    multiply_floats(steps, left.at, right, sums, accumulate);
}
