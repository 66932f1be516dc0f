/* update.h -- what an optimizer step computes, on flat ranges of parameters.
 *
 * Axes     One: n elements.
 * Order    sum_squares adds in f64 over blocks of a fixed size, then the blocks in order. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>

struct sum_squares {
    size_t n;
};
struct sum_squares_io {
    const float *x_n;
    double *sum; /* replaced; the host's, and there when the call returns */
};
enum status sum_squares(const struct ops *, const struct sum_squares *,
                        const struct sum_squares_io *, struct queue *);

/* AdamW (Loshchilov and Hutter 2019, alg. 2), as torch.optim.AdamW computes it:
 *   w *= 1 - lr * decay;  g' = g * scale
 *   m = beta1 m + (1-beta1) g';  v = beta2 v + (1-beta2) g'^2
 *   w -= lr / (1-beta1^step) * m / (sqrt(v) / sqrt(1-beta2^step) + eps)
 * All of that is f32.  Of moments that are kept as BF16, m is rounded to nearest; v at random, as
 * it might otherwise stand still: (1-beta2) of it can be less than half of its last bit.  The bits
 * for it are functions of seed, step, and where an element is in the whole model, so they are the
 * same for any ranks. */
struct adamw {
    size_t n;
    double lr, beta1, beta2, eps, decay;
    double scale; /* of the gradient: the clip factor */
    int64_t step; /* 1 for the first */
    enum dtype copy_dtype;
    enum dtype moments;
    bool split;        /* w is copy_n, of BF16, and low_n: split_half */
    uint64_t seed;     /* moments of BF16: of the bits that round v */
    uint64_t position; /* of the first element; where run is not 0, so many are one behind the
                          other, and each run begins `stride` behind the one before */
    uint64_t run, stride;
};
struct adamw_io {
    float *w_n; /* NULL where it is split */
    void *m_n, *v_n;
    const float *g_n;
    void *copy_n; /* the weights the model computes with; NULL: none */
    uint16_t *low_n;
};
/* Of element i. */
static inline uint64_t adamw_position(const struct adamw *a, uint64_t i)
{
    return a->position + (a->run ? i / a->run * a->stride + i % a->run : i);
}
/* Which block of rng_bits(seed, RNG_MOMENTS, step, .) has its bits: four words, each two elements',
 * low halves first. */
enum { ADAMW_BLOCK = 8 };
/* SHAPE: the first step is 1; split, the copy is BF16. */
enum status adamw(const struct ops *, const struct adamw *, const struct adamw_io *,
                  struct queue *);

/* y = x in another type, or a copy where both are the same. */
struct cast {
    size_t n;
    enum dtype from, to;           /* `from` left out is F32 */
    bool accumulate;               /* y += x */
    size_t rows;                   /* of n elements each; 0 as 1 */
    size_t from_stride, to_stride; /* elements from a row to the next, where there are several */
};
struct cast_io {
    const void *x_n;
    void *y_n;
};
/* SHAPE: strides that are shorter than a row. */
enum status cast(const struct ops *, const struct cast *, const struct cast_io *, struct queue *);

/* y = what split_half has split. */
struct unsplit {
    size_t n;
};
struct unsplit_io {
    const bf16 *half_n;
    const uint16_t *low_n;
    float *y_n;
};
enum status unsplit(const struct ops *, const struct unsplit *, const struct unsplit_io *,
                    struct queue *);
