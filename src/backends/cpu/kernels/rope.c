// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"
#include "backends/cpu/element.h"
#include "backends/cpu/kernels/kernels.h"
#include "tensor/queue.h"

/* One head of one token; pair j is elements j and J + j. */
static inline void rotate(const struct rope *a, enum dtype dtype, void *x, size_t at,
                          const float *cos_J, const float *sin_J)
{
    size_t J = (size_t)a->K / 2;
    float sign = a->inverse ? -1 : 1;
#pragma omp simd
    for (size_t j = 0; j < J; j++) {
        float u = element_get(x, at + j, dtype), v = element_get(x, at + J + j, dtype);
        float c = cos_J[j], s = sign * sin_J[j];
        element_put(x, at + j, dtype, u * c - v * s);
        element_put(x, at + J + j, dtype, v * c + u * s);
    }
}

enum status KERNEL(rope)(const struct rope *a, const struct rope_io *io, struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    size_t J = (size_t)a->K / 2, tokens = (size_t)a->B * (size_t)a->T;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t n = 0; n < tokens; n++) {
        size_t position = ((size_t)a->first + n % (size_t)a->T) * J, at = n * a->stride;
        const float *cos_J = io->cos_TJ + position, *sin_J = io->sin_TJ + position;
        for (size_t h = 0; h < (size_t)a->H; h++)
            if (a->dtype == F32)
                rotate(a, F32, io->x_BTHK, at + h * 2 * J, cos_J, sin_J);
            else
                rotate(a, BF16, io->x_BTHK, at + h * 2 * J, cos_J, sin_J);
    }
    return STATUS_OK;
}
