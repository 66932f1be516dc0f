/* update.h -- the ops of an optimizer step, on flat ranges of parameters.
 *
 * Axes     n elements; S sums of squares.
 * Order    sum_squares accumulates in f64 over blocks of a fixed size, then adds the blocks of each
 *          sum in order. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/rng.h"
#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>

struct sum_squares {
    size_t n;
    enum dtype dtype; /* default F32 */
    size_t sums;      /* of n elements each, one after the other; 0: one */
};
struct sum_squares_io {
    const void *x_Sn;
    double *sum_S; /* replaced; in host memory, and complete when the call returns */
};
static inline size_t sum_squares_count(const struct sum_squares *a)
{
    return a->sums ? a->sums : 1;
}
enum status sum_squares(const struct ops *, const struct sum_squares *,
                        const struct sum_squares_io *, struct queue *);

/* AdamW (Loshchilov and Hutter 2019, alg. 2), as torch.optim.AdamW computes it:
 *   w *= 1 - lr * weight_decay;  g' = g * scale
 *   m = beta1 m + (1-beta1) g';  v = beta2 v + (1-beta2) g'^2
 *   w -= lr / (1-beta1^step) * m / (sqrt(v) / sqrt(1-beta2^step) + eps)
 * computed in f32.  Moments stored as BF16: m is rounded to nearest; v uses stochastic rounding,
 * since a change of (1-beta2) v is often less than half of its last bit and would be lost.  The
 * random bits are a function of seed, step and the element's position in the whole model, so they
 * do not depend on the parallel layout. */
struct adamw_part {
    size_t begin, count; /* elements of the buffers */
    double lr, weight_decay;
    uint64_t position, run, stride; /* as in struct adamw */
};
enum { ADAMW_MAX_PARTS = 128 };
struct adamw {
    size_t n; /* with parts: the sum of their counts */
    double lr, beta1, beta2, eps, weight_decay;
    double scale; /* of the gradient: the clipping factor */
    int64_t step; /* 1 for the first */
    enum dtype copy_dtype;
    enum dtype moments;
    enum dtype gradients; /* default F32 */
    bool split;           /* w is split into copy_n, in BF16, and low_n (split_half) */
    uint64_t seed;        /* of stochastic rounding */
    /* Position in the whole model of the first element.  With `run` not 0, elements are runs of
     * `run` contiguous positions, `stride` apart. */
    uint64_t position, run, stride;
    /* Ranges of elements that differ in lr, weight_decay or position, at most ADAMW_MAX_PARTS; with
     * none, all n elements are one.  Backends with ops.is_multi_tensor update all parts in one
     * launch, others get a call for each. */
    const struct adamw_part *parts;
    int num_parts;
};
struct adamw_io {
    float *w_n; /* NULL if split */
    void *m_n, *v_n;
    const void *g_n;
    void *copy_n; /* copy of the weights for the model to compute with; NULL: none */
    uint16_t *low_n;
};
/* The coefficients of struct adamw's formula in f32, in which every backend computes:
 *   g' = scale g;  m = beta1 m + new1 g';  v = beta2 v + new2 g'^2
 *   w = keep w - rate m / (root sqrt(v) + eps) */
struct adamw_coefficients {
    float keep; /* 1 - lr weight_decay */
    float rate; /* lr / (1 - beta1^step) */
    float root; /* 1 / sqrt(1 - beta2^step) */
    float eps;
    float scale; /* gradient clipping */
    float beta1, beta2;
    float new1, new2; /* 1 - beta1, 1 - beta2 */
};
/* step must be at least 1. */
struct adamw_coefficients adamw_coefficients_of(const struct adamw *a);
/* The position of element i in the whole model. */
static inline uint64_t adamw_position(const struct adamw *a, uint64_t i)
{
    return a->position + (a->run ? i / a->run * a->stride + i % a->run : i);
}
/* Elements per block of random bits: position / ADAMW_BLOCK is the position in
 * rng_bits(seed, RNG_MOMENTS, step, .), whose four words have 16 bits each for two elements, low
 * half first. */
enum { ADAMW_BLOCK = 8 };
/* Where the first element of an op with stochastic rounding is: in the stream of purpose, seed and
 * step, and in the whole model, as in struct adamw. */
struct random_position {
    enum rng_purpose purpose;
    uint64_t seed, step, position, run, stride;
};
/* SHAPE: step below 1, too many parts, or split weights whose copy is not BF16. */
enum status adamw(const struct ops *, const struct adamw *, const struct adamw_io *,
                  struct queue *);

/* z = alpha x + beta y, as the BLAS extension of that name.  z may be x or y; with beta 0, y is not
 * read and may be NULL. */
struct axpby {
    size_t n;
    double alpha, beta;
};
struct axpby_io {
    const float *x_n, *y_n;
    float *z_n;
};
enum status axpby(const struct ops *, const struct axpby *, const struct axpby_io *,
                  struct queue *);

/* y = x / max(||x||, min_norm).  The norm, added up as in sum_squares, stays on the device; nothing
 * synchronizes with the host.  y may be x in F32. */
struct divide_by_norm {
    size_t n;
    enum dtype to; /* of y; default F32 */
    double min_norm;
};
struct divide_by_norm_io {
    const float *x_n;
    void *y_n;
};
enum status divide_by_norm(const struct ops *, const struct divide_by_norm *,
                           const struct divide_by_norm_io *, struct queue *);

/* p = a I + b x + c x x, of square matrices; in f32, rounded once.  The caller computes square_nn,
 * which is x x; p replaces x. */
struct matrix_polynomial {
    int n; /* rows, and columns */
    double a, b, c;
    enum dtype dtype; /* of x and p; default F32 */
};
struct matrix_polynomial_io {
    const float *square_nn;
    void *x_nn;
};
enum status matrix_polynomial(const struct ops *, const struct matrix_polynomial *,
                              const struct matrix_polynomial_io *, struct queue *);

/* Applies an update u whose rate the optimizer chose, with decoupled weight decay:
 *   w = keep w - rate u */
struct apply_update {
    size_t n;
    double keep, rate;
    enum dtype copy_dtype;
    bool split; /* as in struct adamw */
};
struct apply_update_io {
    float *w_n; /* NULL if split */
    const float *u_n;
    void *copy_n; /* as in struct adamw_io */
    uint16_t *low_n;
};
/* SHAPE: split weights whose copy is not BF16. */
enum status apply_update(const struct ops *, const struct apply_update *,
                         const struct apply_update_io *, struct queue *);

/* The exponential moving average of the weights, as torch.lerp computes it:
 *   ema = ema + (1 - decay) (w - ema) */
struct update_ema {
    size_t n;
    double decay;
    bool split; /* w is split into half_n and low_n (split_half) */
};
struct update_ema_io {
    const float *w_n; /* NULL if split */
    const bf16 *half_n;
    const uint16_t *low_n;
    float *ema_n;
};
enum status update_ema(const struct ops *, const struct update_ema *, const struct update_ema_io *,
                       struct queue *);

/* y = scale x, converted to another dtype if they differ.  x may be y if their dtypes and strides
 * are equal. */
struct cast {
    size_t n;
    enum dtype from, to;           /* default F32 */
    bool accumulate;               /* y += scale x */
    size_t rows;                   /* of n elements each; 0: one */
    size_t from_stride, to_stride; /* elements from one row to the next, if several */
    float scale;                   /* in f32, before rounding; 0: 1 */
};
struct cast_io {
    const void *x_n;
    void *y_n;
};
static inline float cast_scale(const struct cast *a) { return a->scale != 0 ? a->scale : 1; }
/* SHAPE: strides shorter than a row. */
enum status cast(const struct ops *, const struct cast *, const struct cast_io *, struct queue *);

/* y = the f32 numbers that split_half has split. */
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
