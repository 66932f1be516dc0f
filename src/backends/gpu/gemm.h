/* gemm.h (gpu) -- matrix multiplication: by cuBLASLt or hipBLASLt where it has an algorithm,
 * otherwise by our own kernels.
 *
 * Axes     C[M, N] = scale A[M, K] B[K, N] (+ D), row-major; a transposed operand is stored as
 *          [K, M] or [N, K].
 * Order    Accumulates in f32, in an order that depends on the sizes and, with a library, on the
 *          algorithm; then multiplies by the scale, adds D and rounds once.
 * Memory   The library's workspace comes from the queue's scratch, which a sizing pass counts.  The
 *          queue keeps the descriptors and the algorithm of every GEMM it has seen. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/runtime.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>

struct float8_scale;
struct queue;
struct text;
struct tuning_files;

enum gemm_type { GEMM_F32, GEMM_BF16, GEMM_E4M3, GEMM_E5M2, GEMM_TYPE_COUNT };

struct gemm {
    int M, N, K;
    bool transpose_a, transpose_b, accumulate;
    bool scaled; /* multiply by both inverse scales */
    /* Both F32 or both BF16; or FP8: A is E4M3 or E5M2, B is E4M3, and only B is transposed. */
    enum gemm_type a, b;
    enum dtype out; /* F32; BF16 only where the operands are not F32 */
};
static inline bool gemm_is_same(const struct gemm *x, const struct gemm *y)
{
    return x->M == y->M && x->N == y->N && x->K == y->K && x->transpose_a == y->transpose_a &&
           x->transpose_b == y->transpose_b && x->accumulate == y->accumulate &&
           x->scaled == y->scaled && x->a == y->a && x->b == y->b && x->out == y->out;
}
struct gemm_io {
    const void *a, *b, *d; /* d: used with `accumulate`; may be c */
    void *c;
    const struct float8_scale *a_scale, *b_scale;
};

/* By our own kernels.  Any size. */
enum status GPU_NAME(gemm_tiled)(const struct gemm *g, const struct gemm_io *io,
                                 struct queue *queue);

/* Writes alpha (the product of both inverse scales) and beta to device memory, for a library that
 * reads them there. */
struct gemm_factors {
    float alpha, beta;
};
enum status GPU_NAME(gemm_factors)(const struct gemm *g, const struct gemm_io *io,
                                   struct gemm_factors *to, struct queue *queue);

/* The epilogue of a scaled GEMM, for a library that does not read factors in device memory: C =
 * scale `product` (+ D), where `product` is A B in f32. */
enum status GPU_NAME(gemm_scale)(const struct gemm *g, const struct gemm_io *io,
                                 const float *product, struct queue *queue);

/* GPU_CUBLASLT, GPU_HIPBLASLT: tests, with a stub of the library. */
#if defined(GPU_CUDA) || defined(GPU_HIP) || defined(GPU_CUBLASLT) || defined(GPU_HIPBLASLT)
/* DEVICE: the library failed. */
enum status GPU_NAME(gemm)(const struct gemm *g, const struct gemm_io *io, struct queue *queue);
/* Uses the algorithms of these files (tensor/tuning.h); with `measures`, sizing passes time those
 * of each GEMM that is in neither, and keep the fastest.  hipBLASLt: no effect. */
void GPU_NAME(gemm_tune)(struct queue *queue, const struct tuning_files *files);
void GPU_NAME(gemm_close)(struct queue *queue);
/* Appends the library and its version.  UNSUPPORTED: it is not installed. */
enum status GPU_NAME(gemm_library)(struct text *out);
#else
static inline enum status GPU_NAME(gemm)(const struct gemm *g, const struct gemm_io *io,
                                         struct queue *queue)
{
    TRY(GPU_NAME(gemm_tiled)(g, io, queue));
    return STATUS_OK;
}
/* Without a library there is nothing to choose and nothing to free. */
static inline void GPU_NAME(gemm_tune)(struct queue *queue, const struct tuning_files *files)
{
    (void)queue, (void)files;
}
static inline enum status GPU_NAME(gemm_library)(struct text *out)
{
    (void)out;
    return STATUS_OK;
}
static inline void GPU_NAME(gemm_close)(struct queue *queue) { (void)queue; }
#endif
