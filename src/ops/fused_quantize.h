/* fused_quantize.h -- quantizes a tensor to FP8 while another op's formula computes it, so that the
 * tensor itself is never stored.
 *
 * Axes     N tokens, C columns of the inputs: D of a norm, F of SwiGLU.
 *
 * of                 inputs                     result
 * FUSED_TENSOR       x_NC                       x
 * FUSED_RMSNORM      x_NC, w_C, rstd_N          rmsnorm.h; its rows are dense
 * FUSED_SWIGLU       x: gate_up_N2F             swiglu.h, forward
 * FUSED_SWIGLU_GRAD  x: gate_up_N2F, dout_NF    swiglu.h: dgate_up_N2F
 * FUSED_FP8          x: row-major FP8 values    the same values, column-major.  y may be x.  Needs
 *                                               no scale and computes no amax
 *
 * Order    The result is rounded to dtype before it is scaled: so FP8 values, amax and scale are
 *          those of the unfused ops.  fused_amax -> fused_quantize with `find`, or, where the scale
 *          is known, fused_quantize alone.
 * Memory   The FP8 values are as those of `quantize` (float8.h); inputs are not packed. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/float8.h"

enum fused_result { FUSED_TENSOR, FUSED_RMSNORM, FUSED_SWIGLU, FUSED_SWIGLU_GRAD, FUSED_FP8 };

struct fused_amax {
    enum fused_result of;
    int N, C;
    float eps; /* FUSED_RMSNORM */
    enum dtype dtype;
};
struct fused_amax_io {
    const void *x, *w_C, *dout_NF;
    float *rstd_N; /* FUSED_RMSNORM: replaced */
    float *amax;   /* replaced by the maximum of its old value and the result's amax */
};
/* Not of FUSED_FP8.  SHAPE: N or C below 1. */
enum status fused_amax(const struct ops *, const struct fused_amax *, const struct fused_amax_io *,
                       struct queue *);

struct fused_quantize {
    enum fused_result of;
    int N, C;
    enum dtype dtype;
    enum float8 to;
    unsigned summed; /* as struct quantize */
    int amaxes;      /* of find.amax, as struct find_scale */
};
struct fused_quantize_io {
    const void *x, *w_C, *dout_NF;
    const float *rstd_N;
    bf16 *y;
    const struct float8_scale *scale; /* NULL: found first, from find.amax, as by find_scale */
    struct find_scale_io find;
    float *amax; /* with `scale`: raised to the amax of the result without NaNs; may be NULL */
};
/* SHAPE: N or C below 1. */
enum status fused_quantize(const struct ops *, const struct fused_quantize *,
                           const struct fused_quantize_io *, struct queue *);

/* Columns of the result. */
static inline size_t fused_columns(enum fused_result of, int C)
{
    return (of == FUSED_SWIGLU_GRAD ? 2 : 1) * (size_t)C;
}
