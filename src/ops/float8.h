/* float8.h -- FP8: the amax of a tensor, its scale, and quantization.
 *
 * format  exponent, mantissa bits   max     min subnormal   infinity
 * E4M3    4, 3                      448     2^-9            no
 * E5M2    5, 2                      57344   2^-16           yes
 *
 * Every FP8 value is also a bf16 value, so a bf16 GEMM of quantized operands with f32 accumulators
 * gives the FP8 result.  linear.h takes quantized operands and their scales.
 * Order    amax -> find_scale -> quantize -> linear.  Each passes its result through device memory,
 *          so the host waits for none of them.
 * Sources  Micikevicius et al. 2022, FP8 Formats for Deep Learning (E4M3, without infinities) */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

enum float8 { E4M3, E5M2, FLOAT8_COUNT };

static inline float float8_max(enum float8 format) { return format == E4M3 ? 448 : 57344; }

/* A tensor is multiplied by `scale` before it is quantized; inverse = 1 / scale. */
struct float8_scale {
    float scale, inverse;
};

/* max |x|; NaN if any element is NaN.  SHAPE: no elements. */
struct amax {
    size_t n;
    enum dtype dtype;
};
struct amax_io {
    const void *x_n;
    float *amax; /* replaced */
};
enum status amax(const struct ops *, const struct amax *, const struct amax_io *, struct queue *);

/* Ends an op that also returns the amax of its result: runs amax, unless the op's kernel has
 * already computed it (ops.computes_amax).  Does nothing if io->amax is NULL. */
enum status float8_result_amax(const struct ops *, const struct amax *, const struct amax_io *,
                               struct queue *);

/* The scale of a tensor: the delayed scale from earlier steps if there is one, otherwise from its
 * current amax. */
struct find_scale {
    enum float8 to;
    int amaxes; /* of parts of the tensor; their maximum, NaN if one is, is its amax.  0: one */
};
struct find_scale_io {
    const float *amax;          /* of each part */
    const float *delayed;       /* delayed scale, used if above 0; may be NULL */
    float *running;             /* running maximum of amax, which ignores NaN; may be NULL */
    struct float8_scale *scale; /* replaced */
};
enum status find_scale(const struct ops *, const struct find_scale *, const struct find_scale_io *,
                       struct queue *);

/* Current scaling: max of the format / amax, with amax at least 1e-12; in f64, rounded to f32. */
static inline float float8_current_scale(float amax, enum float8 format)
{
    double size = (double)amax < 1e-12 ? 1e-12 : (double)amax; /* NaN stays NaN */
    return (float)((double)float8_max(format) / size);
}

/* y = scale * x in f32, rounded to the format, ties to even.  Values beyond the format's maximum,
 * infinity included, saturate to it; NaN stays NaN. */
struct quantize {
    size_t n, columns; /* n / columns rows, if the backend's y is not plain bf16; 0: one row */
    enum dtype dtype;  /* of x */
    enum float8 to;
    unsigned summed; /* axes that the GEMMs of y reduce over, OVER_...; 0: any */
};
enum { OVER_COLUMNS = 1, OVER_ROWS = 2 };
struct quantize_io {
    const void *x_n;
    /* bf16, or, in as many bytes, the layout that `linear` of the same backend takes. */
    bf16 *y_n;
    const struct float8_scale *scale;
};
enum status quantize(const struct ops *, const struct quantize *, const struct quantize_io *,
                     struct queue *);
