// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/gpu.h"
#include "backends/gpu/queue.h"

#define OP(name, what, io)                                                                         \
    enum status GPU_NAME(name)(const struct what *, const struct io *, struct queue *);
#include "ops/ops.def"
#undef OP

#if defined(GPU_CUDA)
#define BACKEND "cuda"
#elif defined(GPU_HIP)
#define BACKEND "hip"
#elif GPU_EMULATED == 64
#define BACKEND "gpu, emulated with warps of 64"
#else
#define BACKEND "gpu, emulated with warps of 32"
#endif

static bool has_native_fp8(const struct queue *queue)
{
    return ((const struct gpu_queue *)queue)->native_fp8;
}

const struct ops GPU_NAME(ops) = {
    .backend = BACKEND,
    .computes_amax = true,
    .is_multi_tensor = true,
    .logit_rows = GPU_LOGIT_ROWS,
    .has_native_fp8 = has_native_fp8,
#define OP(name, what, io) .name = GPU_NAME(name),
#include "ops/ops.def"
#undef OP
};
