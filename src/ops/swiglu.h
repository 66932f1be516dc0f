/* swiglu.h -- out = silu(gate) * up  (Shazeer 2020, eq. 6).
 *
 * Axes     N tokens, F width; gate and up lie in one row of 2F, gate first, as one product with the
 *          stacked weights leaves them.
 * Order    In f32, rounded once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>

struct swiglu {
    int N, F;
    enum dtype dtype;
    bool is_private; /* ops.h: all of them */
};
struct swiglu_fwd {
    const void *gate_up_N2F;
    void *out_NF;
    float *largest; /* NULL, or becomes the largest |out|, as amax (float8.h) finds it */
};
struct swiglu_bwd {
    const void *gate_up_N2F, *dout_NF;
    void *dgate_up_N2F; /* may be gate_up itself */
    float *largest;     /* the same of dgate_up */
};

enum status swiglu_forward(const struct ops *, const struct swiglu *, const struct swiglu_fwd *,
                           struct queue *);
enum status swiglu_backward(const struct ops *, const struct swiglu *, const struct swiglu_bwd *,
                            struct queue *);
