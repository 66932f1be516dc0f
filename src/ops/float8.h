/* float8.h -- numbers of eight bits: how large a tensor's are, and rounding to what eight bits can
 * show.
 *
 * name  bits of exponent, mantissa   largest   least above 0   infinity
 * E4M3  4, 3                             448            2^-9   no
 * E5M2  5, 2                           57344           2^-16   yes
 *
 * Every value of either is one of bf16, too: a product of such bf16 with sums in f32 is the product
 * of the eight-bit numbers.  linear.h takes them with what the result is to be multiplied with.
 * Sources  Micikevicius et al. 2022, FP8 Formats for Deep Learning (E4M3, without infinities) */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

enum float8 { E4M3, E5M2, FLOAT8_COUNT };

static inline float float8_largest(enum float8 format) { return format == E4M3 ? 448 : 57344; }

/* The largest |x|; NaN where there is one. */
struct amax {
    size_t n;
    enum dtype dtype;
};
struct amax_io {
    const void *x_n;
    float *largest; /* replaced; left alone while measuring */
};
enum status amax(const struct ops *, const struct amax *, const struct amax_io *, struct queue *);

/* y = scale * x, in f32, rounded to the nearest number of the format, ties to even; what is larger
 * than its largest, infinity too, becomes that.  NaN stays NaN. */
struct quantize {
    size_t n;
    enum dtype dtype; /* of x */
    enum float8 to;
    float scale;
};
struct quantize_io {
    const void *x_n;
    bf16 *y_n;
};
enum status quantize(const struct ops *, const struct quantize *, const struct quantize_io *,
                     struct queue *);
