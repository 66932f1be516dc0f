/* gemm_engine.h -- what gemm.c asks of the loops that multiply: gemm_tiles.c where there are tiles
 * (tiles.h), gemm_blocks.c elsewhere.  C[M, N] = A[M, K] B[K, N] (+ D) over some steps of K. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/gemm_blocking.h"
#include "backends/cpu/gemm_shape.h"
#include "backends/cpu/kernels/panel.h"

struct gemm_slice {
    const struct gemm_shape *s; /* its K, out, accumulate and scale are the part's */
    const struct gemm_blocking *blocking;
    struct operand a, b; /* M rows of A and N columns of B */
    const void *d;       /* what is added */
    void *c;
    int num_threads;
    size_t max_steps; /* steps of the longest part: what the memory is for */
};

/* Steps of K that are multiplied at a time; depends on the product's sizes alone. */
size_t KERNEL(gemm_slice_steps)(const struct gemm_shape *s);
/* Working memory for parts of at most `deepest` steps, whichever way they go. */
size_t KERNEL(gemm_slice_bytes)(const struct gemm_shape *s, size_t max_steps, int num_threads);
void KERNEL(gemm_slice_multiply)(const struct gemm_slice *slice, void *memory);
