/* gemm_shape.h -- the sizes and buffers of one GEMM. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/dtype.h"

#include <stdbool.h>

/* C[M, N] = A[M, K] B[K, N], with `accumulate` + D[M, N]; a transposed operand is the same memory
 * read the other way. */
struct gemm_shape {
    int M, N, K;
    enum dtype dtype, out;
    bool transpose_a, transpose_b, accumulate;
    bool scaled; /* the product is multiplied with `scale`; of bf16 only */
    float scale;
    /* How each matrix lies (panel.h), D as C does; of bf16 operands only, and of whole panels. */
    bool a_paneled, b_paneled, c_paneled;
};
/* Its matrices.  d may be c; without `accumulate` it is not read. */
struct gemm_buffers {
    const void *a, *b, *d;
    void *c;
};
