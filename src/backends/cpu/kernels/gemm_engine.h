/* gemm_engine.h -- what gemm.c asks of the loops that multiply: gemm_tiles.c where there are tiles
 * (tiles.h), gemm_blocks.c elsewhere.  C[M, N] = A[M, K] B[K, N] (+ D) over some steps of K. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/product.h"
#include "backends/cpu/way.h"

struct gemm_part {
    const struct product_shape *s; /* its K, out, accumulate and scale are the part's */
    const struct way *way;
    struct lines a, b; /* M rows of A and N columns of B */
    const void *d;     /* what is added */
    void *c;
    int num_threads;
    size_t deepest; /* steps of the longest part: what the memory is for */
};

/* Steps of K that are multiplied at a time; depends on the product's sizes alone. */
size_t KERNEL(gemm_depth)(const struct product_shape *s);
/* Working memory for parts of at most `deepest` steps, whichever way they go. */
size_t KERNEL(gemm_bytes)(const struct product_shape *s, size_t deepest, int num_threads);
void KERNEL(gemm_multiply)(const struct gemm_part *part, void *memory);
