// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/tile.h"

#include "backends/cpu/kernels/vector.h"

/* A tile of results in registers: ROWS rows of WIDE vectors, or of one. */
enum { ROWS = 4, WIDE = LANES == 16 ? 4 : 2 };

#define REGISTERS(name, WIDTH)                                                                     \
    static void name(int inner, struct tile_operand a, const float *b, size_t columns_b, float *c, \
                     size_t columns_c, bool accumulate)                                            \
    {                                                                                              \
        vector sum[ROWS][WIDTH];                                                                   \
        for (int i = 0; i < ROWS; i++)                                                             \
            for (int j = 0; j < WIDTH; j++)                                                        \
                sum[i][j] =                                                                        \
                    accumulate ? vector_at(c + (size_t)i * columns_c + LANES * j) : (vector){0};   \
        for (int k = 0; k < inner; k++) {                                                          \
            const float *row = b + (size_t)k * columns_b, *column = a.a + (size_t)k * a.step;      \
            vector right[WIDTH];                                                                   \
            for (int j = 0; j < WIDTH; j++) right[j] = vector_at(row + LANES * j);                 \
            for (int i = 0; i < ROWS; i++)                                                         \
                for (int j = 0; j < WIDTH; j++) sum[i][j] += column[(size_t)i * a.row] * right[j]; \
        }                                                                                          \
        for (int i = 0; i < ROWS; i++)                                                             \
            for (int j = 0; j < WIDTH; j++)                                                        \
                vector_put(c + (size_t)i * columns_c + LANES * j, sum[i][j]);                      \
    }
REGISTERS(wide, WIDE)
REGISTERS(narrow, 1)

void KERNEL(tile_multiply)(int rows, int columns, int inner, struct tile_operand a, const float *b,
                           size_t columns_b, float *c, size_t columns_c, bool accumulate)
{
    for (int i = 0; i < rows; i += ROWS) {
        struct tile_operand here = {a.a + (size_t)i * a.row, a.row, a.step};
        float *out = c + (size_t)i * columns_c;
        int j = 0;
        for (; j + WIDE * LANES <= columns; j += WIDE * LANES)
            wide(inner, here, b + j, columns_b, out + j, columns_c, accumulate);
        for (; j < columns; j += LANES)
            narrow(inner, here, b + j, columns_b, out + j, columns_c, accumulate);
    }
}
