// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/tile.h"

#include <string.h>

/* 16 floats; the compiler splits it where registers are narrower. */
typedef float lanes __attribute__((vector_size(64)));

static inline lanes load(const float *x)
{
    lanes v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline void store(float *x, lanes v) { memcpy(x, &v, sizeof v); }

enum { ROWS = 4 };

/* ROWS x 16 WIDTH results stay in registers over the whole inner loop. */
#define KERNEL(name, WIDTH)                                                                        \
    static void name(int inner, struct tile_operand a, const float *b, size_t columns_b, float *c, \
                     size_t columns_c, bool accumulate)                                            \
    {                                                                                              \
        lanes sum[ROWS][WIDTH];                                                                    \
        for (int i = 0; i < ROWS; i++)                                                             \
            for (int j = 0; j < WIDTH; j++)                                                        \
                sum[i][j] = accumulate ? load(c + (size_t)i * columns_c + 16 * j) : (lanes){0};    \
        for (int k = 0; k < inner; k++) {                                                          \
            const float *row = b + (size_t)k * columns_b, *column = a.a + (size_t)k * a.step;      \
            lanes right[WIDTH];                                                                    \
            for (int j = 0; j < WIDTH; j++) right[j] = load(row + 16 * j);                         \
            for (int i = 0; i < ROWS; i++)                                                         \
                for (int j = 0; j < WIDTH; j++) sum[i][j] += column[(size_t)i * a.row] * right[j]; \
        }                                                                                          \
        for (int i = 0; i < ROWS; i++)                                                             \
            for (int j = 0; j < WIDTH; j++) store(c + (size_t)i * columns_c + 16 * j, sum[i][j]);  \
    }
KERNEL(four, 4)
KERNEL(one, 1)

void tile_multiply(int rows, int columns, int inner, struct tile_operand a, const float *b,
                   size_t columns_b, float *c, size_t columns_c, bool accumulate)
{
    for (int i = 0; i < rows; i += ROWS) {
        struct tile_operand here = {a.a + (size_t)i * a.row, a.row, a.step};
        float *out = c + (size_t)i * columns_c;
        int j = 0;
        for (; j + 64 <= columns; j += 64)
            four(inner, here, b + j, columns_b, out + j, columns_c, accumulate);
        for (; j < columns; j += 16)
            one(inner, here, b + j, columns_b, out + j, columns_c, accumulate);
    }
}
