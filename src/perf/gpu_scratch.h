/* gpu_scratch.h -- scratch memory of the GPU backend's operations, for planning without a GPU.
 *
 * The backend itself counts scratch in a sizing pass, which needs a GPU and its libraries.  These
 * are the same sizes as formulas: those of our own kernels are exact, those of libraries are what
 * cuBLASLt and cuDNN 9 request on an H200, also where the device is another one, and of cuDNN what
 * it requests on a B200.  A test compares them with the backend over the emulator.
 *
 * Units    Bytes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/op.h"
#include "tensor/hardware.h"

/* What the sizes depend on, besides the operation. */
struct gpu_traits {
    enum hardware_vendor vendor; /* VENDOR_none: no library, warps of 32 lanes */
    bool deterministic;          /* device.deterministic */
    size_t attention_bytes;      /* device.attention_bytes */
    bool is_b200;                /* compute capability 10.x, for which cuDNN has other engines */
    bool native_fp8;             /* matrix units multiply FP8 values */
};

/* Scratch that a call of an operation reserves.  has_documents: attention has a document mask. */
size_t gpu_scratch_bytes(const struct op_call *c, bool has_documents, const struct gpu_traits *g);
