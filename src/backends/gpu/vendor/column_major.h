/* column_major.h -- a GEMM as a BLAS library sees it, whose matrices are column-major.
 *
 * A row-major C is the column-major C^T = B^T A^T, so the library's first operand is B. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/gemm.h"

struct column_major {
    int m, n, k; /* C^T is m x n */
    struct column_major_matrix {
        int rows, columns;   /* as stored; the leading dimension is `rows` */
        bool transposed;     /* op(X) = X^T */
    } first, second, result; /* B, A, C */
};

static inline struct column_major column_major_gemm(const struct gemm *g)
{
    struct column_major c = {.m = g->N, .n = g->M, .k = g->K, .result = {g->N, g->M, false}};
    c.first = g->transpose_b ? (struct column_major_matrix){g->K, g->N, true}
                             : (struct column_major_matrix){g->N, g->K, false};
    c.second = g->transpose_a ? (struct column_major_matrix){g->M, g->K, true}
                              : (struct column_major_matrix){g->K, g->M, false};
    return c;
}
