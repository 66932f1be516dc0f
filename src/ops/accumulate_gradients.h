/* accumulate_gradients.h -- gradient accumulation in bfloat16, y = y + x or y = x, with stochastic
 * rounding: a gradient far smaller than the sum so far still changes it on average, where rounding
 * to nearest would lose it.
 *
 * Axes     n elements; with `run` not 0, runs of `run` contiguous positions of the model, `stride`
 *          apart, as in struct adamw.
 * Order    The random bits are a function of seed, step, index and the element's position in the
 *          whole model, so they do not depend on the parallel layout. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum { ACCUMULATE_GRADIENTS_MAX = 1 << 20 }; /* additions in a step */

struct accumulate_gradients {
    size_t n;
    bool accumulate; /* y += x, otherwise y = x */
    uint64_t seed, step;
    uint64_t index; /* which addition of the step it is: below ACCUMULATE_GRADIENTS_MAX */
    uint64_t position, run, stride;
};
struct accumulate_gradients_io {
    const float *x_n;
    bf16 *y_n;
};
/* The step of rng_bits(seed, RNG_GRADIENTS, step, block); blocks are those of ADAMW_BLOCK. */
static inline uint64_t accumulate_gradients_step(const struct accumulate_gradients *a)
{
    return a->step * ACCUMULATE_GRADIENTS_MAX + a->index;
}
/* The position in the whole model of element i. */
static inline uint64_t accumulate_gradients_position(const struct accumulate_gradients *a,
                                                     uint64_t i)
{
    return a->position + (a->run ? i / a->run * a->stride + i % a->run : i);
}
/* SHAPE: too many additions in a step. */
enum status accumulate_gradients(const struct ops *, const struct accumulate_gradients *,
                                 const struct accumulate_gradients_io *, struct queue *);
