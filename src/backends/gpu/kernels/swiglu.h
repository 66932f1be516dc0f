/* swiglu.h (kernels) -- SwiGLU of one element, for the kernels that store it and those that
 * quantize it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/kernels/kernel.h"

/* With the fast intrinsics: exact functions would make the kernels compute-bound. */
static __device__ __forceinline__ float fast_sigmoid(float x)
{
    return __fdividef(1, 1 + __expf(-x));
}

static __device__ __forceinline__ float swiglu_of(float gate, float up)
{
    return up * (gate * fast_sigmoid(gate));
}

/* Replaces gate and up by their gradients.  silu'(x) = sigmoid(x) (1 + x (1 - sigmoid(x))). */
static __device__ __forceinline__ void swiglu_gradients(float dout, float &gate, float &up)
{
    float g = gate, sigmoid = fast_sigmoid(g);
    gate = dout * up * sigmoid * (1 + g * (1 - sigmoid));
    up = dout * g * sigmoid;
}
