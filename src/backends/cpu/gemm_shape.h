/* gemm_shape.h -- the sizes and buffers of one GEMM. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/dtype.h"

#include <stdbool.h>

/* C[M, N] = A[M, K] B[K, N] (+ D[M, N] with `accumulate`). transpose_a: A is stored as [K, M];
 * transpose_b: B is stored as [N, K]. */
struct gemm_shape {
    int M, N, K;
    enum dtype dtype, out;
    bool transpose_a, transpose_b, accumulate;
    bool scaled; /* the product is multiplied by `scale`; bf16 operands only */
    float scale;
    /* Stored in the panel layout (panel.h) instead of by rows; D is stored as C. Only for bf16
     * operands and dims that are multiples of a panel. */
    bool a_paneled, b_paneled, c_paneled;
};
/* d may equal c; it is not read without `accumulate`. */
struct gemm_buffers {
    const void *a, *b, *d;
    void *c;
};
