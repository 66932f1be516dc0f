/* queue.h (gpu) -- what stands behind a struct queue on a GPU; for this backend's files only. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/runtime.h"

#if defined(__cplusplus)
extern "C" {
#endif
#include "tensor/queue.h"
#if defined(__cplusplus)
}
#endif

struct gpu_queue {
    struct queue base; /* first: a struct queue * of this backend points here */
    gpu_stream stream;
    int device;
    bool eight_bits;        /* `quantize` and `linear` keep numbers of eight bits as such */
    void *gemm, *attention; /* of libraries: their handles, what was chosen; NULL: none */
    bool any_order;         /* of sums: faster, and not the same bits every time */
};

/* Gives back what attention keeps; the stream is idle. */
#if defined(__cplusplus)
extern "C"
#endif
    void GPU_NAME(attention_close)(struct gpu_queue *q);

static inline gpu_stream gpu_stream_of(const struct queue *on)
{
    return ((const struct gpu_queue *)on)->stream;
}
