/* cublaslt.h (gpu) -- what cuBLASLt keeps of a product, and which of its algorithms is the fastest;
 * of gemm_cublaslt.c and tuner_cublaslt.c. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/gemm.h"
#include "tensor/queue.h"
#include "tensor/tuning.h"

#include <cublasLt.h>

/* DEVICE, with the library's own words. */
#define CUBLAS_TRY(call)                                                                           \
    do {                                                                                           \
        cublasStatus_t status_ = (call);                                                           \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                      \
            FAIL(DEVICE, "cuBLASLt reports at %s: %s", #call, cublasLtGetStatusString(status_));   \
    } while (0)

enum {
    WORKSPACE_ALIGN = 256,
    WORKSPACE_MOST = 32 << 20, /* bytes; what NVIDIA advises for its newer devices */
    MOST_ALGORITHMS = 8,
};

struct tuner;

struct prepared {
    struct gemm what;
    unsigned alignment;           /* bytes; of operands and results */
    cublasLtMatmulDesc_t product; /* NULL: no algorithm, kernels of our own do it */
    cublasLtMatrixLayout_t first, second, result;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace; /* bytes */
};

struct gemms {
    cublasLtHandle_t library;
    struct prepared *prepared; /* owned */
    size_t count;
    struct tuner *tuner; /* NULL: the first of the library's algorithms */
};

/* One call of a product with one of its algorithms; `workspace` has the bytes it asks for. */
enum status cublaslt_run(const struct gemms *s, const struct prepared *p,
                         const cublasLtMatmulAlgo_t *algorithm, const struct gemm_io *io,
                         void *workspace, size_t bytes, struct queue *on);

/* tuner_cublaslt.c */
struct tuner *cublaslt_tuner_open(const struct queue *on, const char *path);
void cublaslt_tuner_close(struct tuner *t); /* keeps what is not kept yet; NULL is fine */
/* What was timed and found since the last time, in a line and to the file. */
void cublaslt_tuner_tell(struct tuner *t);
/* p->algorithm and p->workspace become those of the fastest of `count` that the library proposes;
 * the first, where there is no time or memory left to find out. */
void cublaslt_tuner_choose(struct tuner *t, const struct gemms *s, struct prepared *p,
                           const cublasLtMatmulHeuristicResult_t *proposed, int count,
                           struct queue *on);
