// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

enum { PIECE = 64 }; /* pairs at a time */

static void rotate(const struct rope *a, void *x, size_t low, size_t high, size_t n, const float *c,
                   const float *s, float sign)
{
    float u[PIECE], v[PIECE], p[PIECE], q[PIECE];
    vector_load(x, low, a->dtype, n, u);
    vector_load(x, high, a->dtype, n, v);
    for (size_t j = 0; j < n; j++) {
        p[j] = u[j] * c[j] - v[j] * (sign * s[j]);
        q[j] = v[j] * c[j] + u[j] * (sign * s[j]);
    }
    vector_store(x, low, a->dtype, n, p);
    vector_store(x, high, a->dtype, n, q);
}

enum status KERNEL(rope)(const struct rope *a, const struct rope_io *io, struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    size_t J = (size_t)a->K / 2, tokens = (size_t)a->B * (size_t)a->T;
    float sign = a->inverse ? -1 : 1;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t n = 0; n < tokens; n++) {
        size_t position = ((size_t)a->first + n % (size_t)a->T) * J;
        for (size_t h = 0; h < (size_t)a->H; h++)
            for (size_t j = 0; j < J; j += PIECE) {
                size_t low = n * a->stride + h * 2 * J + j, left = J - j;
                rotate(a, io->x_BTHK, low, low + J, left < PIECE ? left : PIECE,
                       io->cos_TJ + position + j, io->sin_TJ + position + j, sign);
            }
    }
    return STATUS_OK;
}
