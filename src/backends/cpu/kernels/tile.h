/* tile.h -- small dense products on f32 blocks that lie in a core's caches; for attention.
 *
 * Sizes: rows a multiple of 4, columns a multiple of 16; callers pad with zeros. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>

/* A[i, k] is a[i * row + k * step]: a step other than 1 reads a transposed block. */
struct tile_operand {
    const float *a;
    size_t row, step;
};

/* c[rows, columns] (+)= A[rows, inner] b[inner, columns]; b and c are row-major with `columns_b`
 * and `columns_c` elements a row. */
void KERNEL(tile_multiply)(int rows, int columns, int inner, struct tile_operand a, const float *b,
                           size_t columns_b, float *c, size_t columns_c, bool accumulate);
