/* products.h -- products of bf16 held against sums in f64, in all ways and numbers of threads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/gemm.h"

typedef __typeof__(KERNEL(gemm)) gemm;
gemm amx_emulated_gemm;

/* Of bf16; scale 0: not scaled. */
static inline struct gemm_shape gemm_shape_of(int M, int N, int K, enum dtype out, bool transpose_a,
                                              bool transpose_b, bool accumulate, float scale)
{
    return (struct gemm_shape){.M = M,
                               .N = N,
                               .K = K,
                               .dtype = BF16,
                               .out = out,
                               .transpose_a = transpose_a,
                               .transpose_b = transpose_b,
                               .accumulate = accumulate,
                               .scaled = scale != 0,
                               .scale = scale};
}

void gemm_check(gemm *multiply, struct gemm_shape s);
/* Operands and C that lie as panels (of whole ones) have the bits of those that lie in rows. */
void gemm_check_paneled(gemm *multiply, struct gemm_shape s);
/* With every set that runs here, and tiles emulated. */
void gemm_check_each_isa(struct gemm_shape s);
