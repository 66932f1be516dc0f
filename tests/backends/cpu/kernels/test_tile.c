// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/tile.h"
#include "base/rng.h"
#include "test.h"

typedef __typeof__(KERNEL(tile_multiply)) tile_multiply;
#define X(set)                                                                                     \
    extern const struct cpu_set set##_set;                                                         \
    tile_multiply set##_tile_multiply;
CPU_SETS(X)
#undef X

enum { ROWS = 12, COLUMNS = 96, INNER = 37, STRIDE = 101 };

static float value(uint64_t matrix, int i, int j)
{
    return (float)rng_uniform(3, 0, matrix, (uint64_t)(i * 1000 + j)) - 0.5f;
}

/* Against three plain loops, at widths that take the wide kernel, the narrow one and both. */
static void check_product(tile_multiply *multiply, int columns, bool transposed, bool accumulate)
{
    float a[ROWS * INNER], b[INNER * STRIDE], c[ROWS * STRIDE];
    struct tile_operand operand = {a, transposed ? 1 : INNER, transposed ? ROWS : 1};
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < INNER; k++)
            a[(size_t)i * operand.row + (size_t)k * operand.step] = value(1, i, k);
    for (int k = 0; k < INNER; k++)
        for (int j = 0; j < STRIDE; j++) b[k * STRIDE + j] = value(2, k, j);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < STRIDE; j++) c[i * STRIDE + j] = value(3, i, j);
    multiply(ROWS, columns, INNER, operand, b, STRIDE, c, STRIDE, accumulate);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < STRIDE; j++) {
            double want = j >= columns || accumulate ? (double)value(3, i, j) : 0;
            for (int k = 0; k < INNER && j < columns; k++)
                want += (double)value(1, i, k) * (double)value(2, k, j);
            CHECK_NEAR((double)c[i * STRIDE + j], want, 1e-5);
        }
}

TEST(tile_multiply_is_three_loops_and_writes_nothing_beside_its_columns)
{
    static const int columns[] = {16, 48, 64, 80, 96};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        for (int how = 0; how < 4; how++) {
#define X(set)                                                                                     \
    if (cpu_set_runs(&set##_set)) check_product(set##_tile_multiply, columns[i], how & 1, how & 2);
            CPU_SETS(X)
#undef X
        }
}
