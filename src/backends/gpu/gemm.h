/* gemm.h (gpu) -- products of matrices: by the vendor's library where there is one that takes them,
 * by kernels of our own otherwise.
 *
 * Axes     C[M, N] = scale A[M, K] B[K, N] (+ D), each row behind the last; a transposed operand is
 *          stored the other way round, [K, M] or [N, K].
 * Order    Sums in f32, in an order that depends on the sizes and, in a library, on the algorithm;
 *          then the scale, then D, then one rounding.
 * Memory   A library's workspace is of the queue's scratch, which a measuring pass counts, and what
 *          it prepares for a product is kept by the queue from then on. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/runtime.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>

struct float8_scale;
struct queue;

enum gemm_number { GEMM_F32, GEMM_BF16, GEMM_E4M3, GEMM_E5M2, GEMM_NUMBERS };

struct gemm {
    int M, N, K;
    bool transpose_a, transpose_b, accumulate;
    bool scaled; /* by the product of both inverse scales */
    /* Both F32, both BF16; or B is E4M3 and A is of eight bits, too, where A B^T is asked for. */
    enum gemm_number a, b;
    enum dtype out; /* F32; BF16 where the operands are not F32 */
};
struct gemm_io {
    const void *a, *b, *d; /* d: with `accumulate`; may be c */
    void *c;
    const struct float8_scale *a_scale, *b_scale;
};

/* By kernels of our own.  Of any size. */
enum status GPU_NAME(gemm_tiled)(const struct gemm *g, const struct gemm_io *io, struct queue *on);

/* For a library that reads its factors on the device: alpha, the product of both inverse scales. */
struct gemm_factors {
    float alpha, beta;
};
enum status GPU_NAME(gemm_factors)(const struct gemm *g, const struct gemm_io *io,
                                   struct gemm_factors *to, struct queue *on);

#if defined(GPU_CUDA) || defined(GPU_CUBLASLT) /* in tests a library that stands in for it */
/* By cuBLASLt, but for what it has no algorithm for.  DEVICE: it failed. */
enum status GPU_NAME(gemm)(const struct gemm *g, const struct gemm_io *io, struct queue *on);
/* From here on measuring passes time the algorithms of each product, and keep the fastest in a
 * file (tensor/tuning.h). */
void GPU_NAME(gemm_tune)(struct queue *on, const char *path);
void GPU_NAME(gemm_close)(struct queue *on);
#else
static inline enum status GPU_NAME(gemm)(const struct gemm *g, const struct gemm_io *io,
                                         struct queue *on)
{
    TRY(GPU_NAME(gemm_tiled)(g, io, on));
    return STATUS_OK;
}
/* There is one way, and nothing is kept. */
static inline void GPU_NAME(gemm_tune)(struct queue *on, const char *path) { (void)on, (void)path; }
static inline void GPU_NAME(gemm_close)(struct queue *on) { (void)on; }
#endif
