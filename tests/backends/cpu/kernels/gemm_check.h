/* gemm_check.h -- checks bf16 and f32 GEMMs against f64 sums, with every blocking and several
 * numbers of threads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/gemm.h"

typedef __typeof__(KERNEL(gemm)) gemm_kernel;
gemm_kernel amx_emulated_gemm;

/* bf16; scale 0: not scaled. */
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

void gemm_check(gemm_kernel *multiply, struct gemm_shape s);
/* With AMX's tiles, if supported, and emulated ones: operands and C in the panel layout give the
 * same bits as those stored by rows. */
void gemm_check_paneled(struct gemm_shape s);
/* With every supported ISA, and with emulated tiles. */
void gemm_check_each_isa(struct gemm_shape s);
