/* float8.h -- numbers of eight bits: how large a tensor's are, and rounding to what eight bits can
 * show.
 *
 * name  bits of exponent, mantissa   largest   least above 0   infinity
 * E4M3  4, 3                             448            2^-9   no
 * E5M2  5, 2                           57344           2^-16   yes
 *
 * Every value of either is one of bf16, too: a product of such bf16 with sums in f32 is the product
 * of the eight-bit numbers.  linear.h takes them with their scales.
 * Order    amax -> find_scale -> quantize -> linear: what one finds is in memory that the next one
 *          reads, so the host waits for none of them.
 * Sources  Micikevicius et al. 2022, FP8 Formats for Deep Learning (E4M3, without infinities) */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

enum float8 { E4M3, E5M2, FLOAT8_COUNT };

static inline float float8_largest(enum float8 format) { return format == E4M3 ? 448 : 57344; }

/* What a tensor is multiplied with before it is rounded, and what undoes it: 1 / scale. */
struct float8_scale {
    float scale, inverse;
};

/* The largest |x|; NaN where there is one. */
struct amax {
    size_t n;
    enum dtype dtype;
};
struct amax_io {
    const void *x_n;
    float *largest; /* replaced */
};
enum status amax(const struct ops *, const struct amax *, const struct amax_io *, struct queue *);

/* Ends an operation that was asked for the largest number of its result as well, x: by amax, unless
 * the backend's kernel has found it on its way.  NULL: it was not asked. */
enum status largest_of_result(const struct ops *, size_t n, enum dtype, const void *x_n,
                              float *largest, struct queue *);

/* Of a tensor: its scale of the steps before, where it has one; otherwise by its largest number. */
struct find_scale {
    enum float8 to;
};
struct find_scale_io {
    const float *largest;
    const float *held; /* NULL, or the scale where it is above 0 */
    float *seen;       /* NULL, or becomes `largest` where that is larger: not where it is NaN */
    struct float8_scale *scale; /* replaced */
};
enum status find_scale(const struct ops *, const struct find_scale *, const struct find_scale_io *,
                       struct queue *);

/* largest of the format / amax, but at least 1e-12; in f64, rounded to f32. */
static inline float float8_current(float amax, enum float8 format)
{
    double size = (double)amax < 1e-12 ? 1e-12 : (double)amax; /* NaN stays NaN */
    return (float)((double)float8_largest(format) / size);
}

/* y = scale * x, in f32, rounded to the nearest number of the format, ties to even; what is larger
 * than its largest, infinity too, becomes that.  NaN stays NaN. */
struct quantize {
    size_t n, columns; /* n / columns rows, where y is more than bf16; 0: one row */
    enum dtype dtype;  /* of x */
    enum float8 to;
    unsigned summed; /* over which of its axes products of y will sum; 0: any */
};
enum { OVER_COLUMNS = 1, OVER_ROWS = 2 };
struct quantize_io {
    const void *x_n;
    /* bf16; or, in as many bytes, what linear of the same backend takes for these products. */
    bf16 *y_n;
    const struct float8_scale *scale;
};
enum status quantize(const struct ops *, const struct quantize *, const struct quantize_io *,
                     struct queue *);
