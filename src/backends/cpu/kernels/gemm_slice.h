/* gemm_slice.h -- the GEMM loops over one K slice: C[M, N] = A[M, K] B[K, N] (+ D).  gemm_tiles.c
 * has them for AMX, gemm_blocks.c for other ISAs. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/gemm_blocking.h"
#include "backends/cpu/gemm_shape.h"
#include "backends/cpu/kernels/panel.h"

struct gemm_slice {
    const struct gemm_shape *s; /* with K, out, accumulate and scale of the slice */
    const struct gemm_blocking *blocking;
    struct operand a, b; /* M rows of A and N columns of B */
    const void *d;       /* the addend */
    void *c;
    int num_threads;
    size_t max_steps; /* k-steps of the longest slice, which sizes the memory */
};

/* The most k-steps of a slice; depends on the GEMM's sizes alone. */
size_t KERNEL(gemm_slice_steps)(const struct gemm_shape *s);
/* Scratch for slices of at most `max_steps`, with any blocking. */
size_t KERNEL(gemm_slice_bytes)(const struct gemm_shape *s, size_t max_steps, int num_threads);
void KERNEL(gemm_slice_multiply)(const struct gemm_slice *slice, void *memory);
