/* products.h -- products of bf16 held against sums in f64, in all ways and numbers of threads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/gemm.h"

typedef __typeof__(KERNEL(gemm)) gemm;
gemm amx_emulated_gemm;

void products_check(gemm *multiply, struct product_shape s);
/* With every set that runs here, and tiles emulated. */
void products_check_each_set(struct product_shape s);
