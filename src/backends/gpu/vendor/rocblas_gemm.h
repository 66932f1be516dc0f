/* rocblas_gemm.h (gpu) -- GEMMs by rocBLAS, which has kernels that hipBLASLt lacks: bf16 operands
 * with a float32 result on an MI250X, before ROCm 7.2.
 *
 * Order    Without atomics, so that the bits are the same in every run.
 * Memory   The library gets its workspace with each call, and allocates nothing itself after
 *          rocblas_gemm_open; docs/gpu-amd.md names versions that do. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/gemm.h"

struct rocblas_gemm; /* a handle of the library, on a queue's stream */

/* UNSUPPORTED: the library is not installed, or fails. */
enum status rocblas_gemm_open(struct rocblas_gemm **out, struct queue *queue);
void rocblas_gemm_close(struct rocblas_gemm *r); /* NULL is fine */

/* Whether it computes GEMMs of these types and transposes: the first time, it multiplies small
 * matrices and compares the result, with device memory of its own.  UNSUPPORTED: it does not.
 * Ignores `scaled`. */
enum status rocblas_gemm_check(struct rocblas_gemm *r, const struct gemm *g, struct queue *queue);

/* Runs one that is not scaled.  `leading`: leading dimension of A as stored.  `workspace`: not
 * NULL.  UNSUPPORTED: the library refuses it; nothing was computed. */
struct rocblas_call {
    const struct gemm *gemm;
    const struct gemm_io *io;
    int leading;
    void *workspace;
    size_t bytes; /* of the workspace */
};
enum status rocblas_gemm_run(struct rocblas_gemm *r, const struct rocblas_call *call);

/* Appends the library and its version.  UNSUPPORTED: it is not installed. */
enum status rocblas_gemm_library(struct text *out);
