// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

enum { AHEAD = 4 }; /* tokens: one alone is over before what it asks for comes */

/* Of one token, in all its heads; pair j is elements j and J + j. */
static inline void rotate_pairs(const struct rope *a, enum dtype dtype, void *x, size_t at,
                                vector cos, vector sin, size_t count)
{
    size_t J = (size_t)a->K / 2;
    for (size_t h = 0; h < (size_t)a->H; h++, at += 2 * J) {
        vector_ask(x, at + AHEAD * a->stride, dtype);
        vector_ask(x, at + J + AHEAD * a->stride, dtype);
        vector u = vector_get(x, at, dtype, count), v = vector_get(x, at + J, dtype, count);
        vector_set(x, at, dtype, count, u * cos - v * sin);
        vector_set(x, at + J, dtype, count, v * cos + u * sin);
    }
}

static inline void rotate(const struct rope *a, const struct rope_io *io, enum dtype dtype,
                          size_t n)
{
    size_t J = (size_t)a->K / 2, at = n * a->stride, j = 0;
    size_t position = ((size_t)a->first + n % (size_t)a->T) * J;
    const float *cos_J = io->cos_TJ + position, *sin_J = io->sin_TJ + position;
    float sign = a->inverse ? -1 : 1;
    for (; j + LANES <= J; j += LANES)
        rotate_pairs(a, dtype, io->x_BTHK, at + j, vector_at(cos_J + j),
                     sign * vector_at(sin_J + j), LANES);
    if (j == J) return;
    vector cos = vector_get(cos_J, j, F32, J - j), sin = vector_get(sin_J, j, F32, J - j);
    rotate_pairs(a, dtype, io->x_BTHK, at + j, cos, sign * sin, J - j);
}

enum status KERNEL(rope)(const struct rope *a, const struct rope_io *io, struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    size_t tokens = (size_t)a->B * (size_t)a->T;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t n = 0; n < tokens; n++)
        if (a->dtype == F32)
            rotate(a, io, F32, n);
        else
            rotate(a, io, BF16, n);
    return STATUS_OK;
}
