/* panel_multiply.c (cpu) -- the GEMM micro-kernels: one row panel times one column panel.
 *
 * AMX: 2 x 2 tiles of 16 x 16.  AVX-512 with bf16: 8 rows x 32 columns of accumulators in
 * registers, pairs of A broadcast to VDPBF16PS.  Else f32: 8 rows x 2 vectors with AVX-512; 6 x 2,
 * and 2 x 4 for the last 2 rows, where the ISA has 16 registers. */
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

/* An f32 multiply of some rows of the left panel by some columns of the right one. */
struct f32_block {
    const float *left, *right;
    size_t row; /* from a row of `left` to the next; its k are PANEL apart if this is 1, else 1 */
    size_t depth;
    float *acc;
    bool accumulate;
    const char *next; /* to prefetch, next_step bytes every other k */
    size_t next_step;
};

enum { MAX_ROWS = 8, MAX_VECTORS = 4 };

/* One k: c += column of A x row of B. */
static inline __attribute__((always_inline)) void multiply_k(vector c[MAX_ROWS][MAX_VECTORS],
                                                             const float *a, size_t row,
                                                             const float *b, const int R,
                                                             const int V)
{
    vector columns[MAX_VECTORS];
    for (int j = 0; j < V; j++) columns[j] = vector_loadu(b + j * LANES);
    for (int i = 0; i < R; i++)
        for (int j = 0; j < V; j++) c[i][j] += a[(size_t)i * row] * columns[j];
}

/* R rows x V vectors of accumulators, which the compiler keeps in registers; in_place: the left
 * panel's rows are K-major. */
static inline __attribute__((always_inline)) void multiply_block(struct f32_block *of, const int R,
                                                                 const int V, const bool in_place)
{
    enum { UNROLL = 2, TO_L2 = 2 };
    const float *a = of->left, *b = of->right;
    const char *next = of->next;
    const size_t next_step = of->next_step, row = in_place ? of->row : 1;
    const size_t a_step = in_place ? 1 : PANEL;
    vector c[MAX_ROWS][MAX_VECTORS] = {0};
    for (int i = 0; i < R && of->accumulate; i++)
        for (int j = 0; j < V; j++) c[i][j] = vector_loadu(of->acc + i * PANEL + j * LANES);
    for (size_t pair = 0; pair < of->depth / UNROLL; pair++, next += next_step) {
        __builtin_prefetch(next, 0, TO_L2);
        multiply_k(c, a, row, b, R, V);
        multiply_k(c, a + a_step, row, b + PANEL, R, V);
        a += UNROLL * a_step, b += UNROLL * PANEL;
    }
    if (of->depth % UNROLL) multiply_k(c, a, row, b, R, V);
    for (int i = 0; i < R; i++)
        for (int j = 0; j < V; j++) vector_storeu(of->acc + i * PANEL + j * LANES, c[i][j]);
    of->next = next;
}

enum {
    ROWS = LANES == 16 ? 8 : 6,
    COLUMNS = 2 * LANES,
    FULL_ROWS = PANEL / ROWS * ROWS,
    BLOCKS = PANEL / ROWS * (PANEL / COLUMNS)
};

/* The first rows and columns of the micro-tile over one chunk of K.  Returns where the prefetch
 * continues. */
static inline __attribute__((always_inline)) const char *
multiply_chunk(const struct f32_block *of, size_t rows, size_t columns, const bool in_place)
{
    struct f32_block block = *of;
    for (size_t column = 0; column < columns; column += COLUMNS)
        for (size_t row = 0; row < FULL_ROWS && row < rows; row += ROWS) {
            block.left = of->left + row * of->row, block.right = of->right + column;
            block.acc = of->acc + row * PANEL + column;
            if (columns - column > LANES)
                multiply_block(&block, ROWS, 2, in_place);
            else
                multiply_block(&block, ROWS, 1, in_place);
        }
    const char *next = block.next;
#if !defined(__AVX512F__)
    for (size_t column = 0; column < columns && rows > FULL_ROWS; column += 4 * LANES) {
        block.left = of->left + FULL_ROWS * of->row, block.right = of->right + column;
        block.acc = of->acc + FULL_ROWS * PANEL + column;
        multiply_block(&block, PANEL - FULL_ROWS, 4, in_place);
    }
#endif
    return next;
}

/* Chunks of K stay in L1 while groups of rows visit them. */
static void multiply_f32(size_t steps, struct left_panel left, const float *right, float *acc,
                         bool accumulate)
{
    enum { CHUNK_STEPS = 4 };
    const size_t chunks = (steps + CHUNK_STEPS - 1) / CHUNK_STEPS;
    const size_t depth = size_min(left.depth, steps * PANEL);
    const bool in_place = left.step < panel_step_bytes(PANEL_F32);
    struct f32_block of = {.acc = acc,
                           .row = in_place ? left.row / sizeof *of.left : 1,
                           .accumulate = accumulate,
                           .next = left.next ? left.next : left.at,
                           .next_step = left.next_bytes / (BLOCKS * PANEL / 2 * steps)};
    for (size_t i = 0; i < chunks; i++) {
        size_t begin = steps * i / chunks, end = steps * (i + 1) / chunks;
        of.depth = size_min(end * PANEL, depth) - begin * PANEL;
        of.left = (const float *)(const void *)((const char *)left.at + begin * left.step);
        of.right = right + begin * MICRO_TILE;
        of.next = in_place ? multiply_chunk(&of, left.rows, left.columns, true)
                           : multiply_chunk(&of, left.rows, left.columns, false);
        of.accumulate = true;
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
