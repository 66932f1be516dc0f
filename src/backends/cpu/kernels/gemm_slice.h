/* gemm_slice.h -- the GEMM loops over one K slice: C[M, N] = A[M, K] B[K, N] (+ D).  gemm_tiles.c
 * has them for bf16 with AMX, gemm_blocks.c for everything else. */
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

/* The loops for one kind of panel. */
struct gemm_loops {
    /* The most k-steps of a slice; depends on the GEMM's sizes alone. */
    size_t (*slice_steps)(const struct gemm_shape *s);
    /* Scratch for slices of at most `max_steps`, with any blocking. */
    size_t (*slice_bytes)(const struct gemm_shape *s, size_t max_steps, int num_threads);
    void (*multiply)(const struct gemm_slice *slice, void *memory);
};
extern const struct gemm_loops KERNEL(gemm_blocks);
extern const struct gemm_loops KERNEL(gemm_tiles); /* bf16; only where AMX tiles are available */
