/* swiglu.h -- out = silu(gate) * up  (Shazeer 2020, eq. 6).
 *
 * Axes     N tokens, F width; gate and up are one row of 2F, gate first: the output of one GEMM
 *          with the stacked weights.
 * Order    In f32, rounded once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>

struct swiglu {
    int N, F;
    enum dtype dtype;
    bool is_packed; /* all tensors are packed (ops.h) */
};
struct swiglu_fwd {
    const void *gate_up_N2F;
    void *out_NF;
    float *amax; /* amax of out (float8.h); may be NULL */
};
struct swiglu_bwd {
    const void *gate_up_N2F, *dout_NF;
    void *dgate_up_N2F; /* may be gate_up: in place */
    float *amax;        /* amax of dgate_up; may be NULL */
};

/* SHAPE: N or F below 1. */
enum status swiglu_forward(const struct ops *, const struct swiglu *, const struct swiglu_fwd *,
                           struct queue *);
enum status swiglu_backward(const struct ops *, const struct swiglu *, const struct swiglu_bwd *,
                            struct queue *);
