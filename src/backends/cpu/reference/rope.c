// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"

enum status reference_rope(const struct rope *a, const struct rope_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t K = (size_t)a->K, J = (size_t)a->J, tokens = (size_t)a->B * (size_t)a->T;
    for (size_t n = 0; n < tokens; n++) {
        size_t first = (size_t)a->first + n % (size_t)a->T;
        size_t position = io->positions_BT ? (size_t)io->positions_BT[n] : first;
        for (size_t h = 0; h < (size_t)a->H; h++)
            for (size_t j = 0; j < J; j++) {
                size_t low = n * a->stride + h * K + j, high = low + J;
                size_t angle = position * J + j;
                float c = io->cos_TJ[angle],
                      s = a->inverse ? -io->sin_TJ[angle] : io->sin_TJ[angle];
                float x = element_get(io->x_BTHK, low, a->dtype);
                float y = element_get(io->x_BTHK, high, a->dtype);
                element_set(io->x_BTHK, low, a->dtype, x * c - y * s);
                element_set(io->x_BTHK, high, a->dtype, y * c + x * s);
            }
    }
    return STATUS_OK;
}
