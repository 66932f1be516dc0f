/* gemm_columns.h (gpu) -- a product as a library sees it that keeps matrices column after column.
 *
 * Rows of C are columns of its transpose, and C^T = B^T A^T: so B comes first. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/gemm.h"

/* first is B and second is A; a matrix has `rows` numbers a column, each column behind the last. */
struct gemm_columns {
    int m, n, k; /* C^T is m x n */
    struct gemm_stored {
        int rows, columns;
        bool transposed; /* before it is multiplied */
    } first, second, result;
};

static inline struct gemm_columns gemm_columns(const struct gemm *g)
{
    struct gemm_columns c = {.m = g->N, .n = g->M, .k = g->K, .result = {g->N, g->M, false}};
    c.first = g->transpose_b ? (struct gemm_stored){g->K, g->N, true}
                             : (struct gemm_stored){g->N, g->K, false};
    c.second = g->transpose_a ? (struct gemm_stored){g->M, g->K, true}
                              : (struct gemm_stored){g->K, g->M, false};
    return c;
}
