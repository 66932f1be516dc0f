/* cublaslt.h -- what cublaslt_gemm.c and cublaslt_tuner.c share: the descriptors and the chosen
 * algorithm of each GEMM, and autotuning.
 *
 * Memory   The queue owns a struct cublaslt (gpu_queue.gemm) with all it has prepared. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/gemm.h"
#include "tensor/queue.h"
#include "tensor/tuning.h"

#include <cublasLt.h>

/* Fails with DEVICE and the library's status string. */
#define CUBLASLT_TRY(call)                                                                         \
    do {                                                                                           \
        cublasStatus_t status_ = (call);                                                           \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                      \
            FAIL(DEVICE, "cuBLASLt: %s: %s", #call, cublasLtGetStatusString(status_));             \
    } while (0)

enum {
    CUBLASLT_WORKSPACE_ALIGN = 256,
    CUBLASLT_MAX_WORKSPACE = 32 << 20, /* bytes; NVIDIA's recommendation for Hopper */
    CUBLASLT_MAX_CANDIDATES = 8,
    CUBLASLT_MAX_ALIGNMENT = ARENA_ALIGN, /* bytes, that operands are declared with */
};

/* How the partial sums of split-K may be added.  cuBLASLt documents a separate reduction in f32
 * only for this scheme.  The others add in the output's type, and INPLACE does not document in
 * which order. */
static const uint32_t split_k_reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

struct cublaslt_tuner;

/* One GEMM shape. */
struct cublaslt_matmul {
    struct gemm gemm;
    unsigned alignment;        /* of all operands, bytes */
    int32_t multiprocessors;   /* 0: all */
    cublasLtMatmulDesc_t desc; /* NULL: no algorithm, our own kernels compute it */
    cublasLtMatrixLayout_t first, second, result;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace; /* bytes */
};

struct cublaslt {
    cublasLtHandle_t handle;         /* NULL: cuBLASLt is not installed */
    struct cublaslt_matmul *matmuls; /* owned */
    size_t count;
    bool warned;                  /* that it lacks an algorithm */
    struct cublaslt_tuner *tuner; /* owned; NULL: take the first algorithm of the heuristics */
};

/* What the heuristics propose, best first. */
struct cublaslt_candidates {
    cublasLtMatmulHeuristicResult_t results[CUBLASLT_MAX_CANDIDATES];
    int count;
};

/* Starts one matmul with one algorithm. */
struct cublaslt_call {
    const struct cublaslt_matmul *matmul;
    const cublasLtMatmulAlgo_t *algorithm;
    const struct gemm_io *io;
    void *workspace;
    size_t workspace_bytes;
};
enum status cublaslt_run(const struct cublaslt *c, const struct cublaslt_call *call,
                         struct queue *queue);

/* cublaslt_load.c, or the tests' stub.  Call before any function of the library.  UNSUPPORTED: it
 * is not installed, or lacks a function. */
enum status cublaslt_load(void);

/* cublaslt_tuner.c */
struct cublaslt_tuner *cublaslt_tuner_open(const struct queue *queue,
                                           const struct tuning_files *files);
void cublaslt_tuner_close(struct cublaslt_tuner *t); /* saves new entries; NULL is fine */
/* Logs how many GEMMs were timed or found in the files since the last report, and saves the user's
 * file. */
void cublaslt_tuner_report(struct cublaslt_tuner *t);
/* Sets the algorithm and workspace of `m` to those of a file, or, in a sizing pass and with
 * tuning_files.measures, of the fastest candidate; leaves the first candidate if the time budget or
 * the memory does not allow timing. */
void cublaslt_tuner_choose(struct cublaslt_tuner *t, const struct cublaslt *c,
                           struct cublaslt_matmul *m, const struct cublaslt_candidates *candidates,
                           struct queue *queue);
