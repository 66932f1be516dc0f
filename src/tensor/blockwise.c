// SPDX-License-Identifier: Apache-2.0
#include "tensor/blockwise.h"

#include <math.h>

/* Decade i, from 10^(i - 7) to 10^(i - 6), is divided into 2^i cells if signed, else twice as
 * many, and its values are their centers.  So 1 + index, or for signed values index, is 2^i or
 * 2^(i + 1) in decade i, plus the cell. */
static float center(int decade, int cell, int cells)
{
    static const double powers[BLOCKWISE_DECADES] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    /* The explicit FMA gives the same bits with every compiler. */
    return (float)(powers[decade] * fma(2 * cell + 1, 0.45 / cells, 0.1));
}

void blockwise_map_init(struct blockwise_map *map, bool is_signed)
{
    int zero = is_signed ? 127 : 0;
    map->is_signed = is_signed;
    map->value[zero] = 0, map->value[BLOCKWISE_CODES - 1] = 1;
    for (int decade = 0; decade < BLOCKWISE_DECADES; decade++) {
        int cells = 1 << (decade + !is_signed);
        for (int cell = 0; cell < cells; cell++) {
            float value = center(decade, cell, cells);
            map->value[zero + cells - !is_signed + cell] = value;
            if (is_signed) map->value[zero - cells - cell] = -value;
        }
    }
    map->above[0] = -INFINITY, map->above[BLOCKWISE_CODES] = INFINITY;
    for (int c = 1; c < BLOCKWISE_CODES; c++)
        map->above[c] = (map->value[c - 1] + map->value[c]) / 2;
    map->above[zero + 1] = 0;
    if (is_signed) map->above[zero] = -0x1p-149f; /* the next number below 0 */
}
