/* queue.h (gpu) -- the GPU backend's struct queue: a stream and the state of the libraries that run
 * on it; for this backend's files only. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/runtime.h"

#if defined(__cplusplus)
extern "C" {
#endif
#include "tensor/device.h"
#include "tensor/queue.h"
#if defined(__cplusplus)
}
#endif

struct gpu_queue {
    struct queue base; /* first: a struct queue * of this backend points here */
    gpu_stream stream;
    gpu_stream copies[STREAM_COUNT]; /* of each direction (copy_stream.h); NULL: not used yet */
    int device;
    bool native_fp8;          /* `quantize` writes FP8 bytes, and `linear` multiplies them */
    void *gemm, *attention;   /* state of the libraries: handles, plans; NULL: not used */
    int gemm_multiprocessors; /* for cuBLASLt's GEMMs; 0: all */
    size_t attention_bytes;   /* that cuDNN may use in a deterministic backward; 0: its default */
    bool attention_opened;    /* or tried: without cuDNN, attention stays NULL */
    bool has_logged_parts;    /* that our own kernels compute parts of the keys (cudnn_queue.c) */
    bool has_ranges;          /* a profiler's library takes ranges (profiler.h) */
    bool nondeterministic;    /* kernels may sum in any order: faster, but bits vary between runs */
};

static inline gpu_stream gpu_stream_of(const struct queue *queue)
{
    return ((const struct gpu_queue *)queue)->stream;
}

/* Whether a GPU of that compute capability (120 for 12.0; 0: not NVIDIA's) needs PTX, which its
 * driver compiles only if it is not older than the toolkit.  toolkit.mk makes binary code for
 * sm_80, sm_90 and, from CUDA 12.8 on, sm_100, which runs on GPUs of the same major version.
 * Versions are 12040 for 12.4. */
bool GPU_NAME(lacks_driver_for_ptx)(int capability, int driver, int toolkit);
/* Whether flags of hipcc, such as "--offload-arch=gfx90a --offload-arch=gfx942:xnack-", generate
 * code for an architecture that gpu_architecture names.  True where they do not tell: "native" or a
 * generic one; and for "". */
bool GPU_NAME(has_code)(const char *flags, const char *architecture);
/* UNSUPPORTED: that is false; the message says whether GPU `index` needs other flags. */
enum status GPU_NAME(check_architecture)(const char *flags, const char *architecture, int index);
