// SPDX-License-Identifier: Apache-2.0
#include "ops/bias.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"

enum status reference_bias_forward(const struct bias *a, const struct bias_fwd *io,
                                   struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t F = (size_t)a->F;
    for (size_t i = 0; i < (size_t)a->N * F; i++)
        element_set(io->y_NF, i, a->dtype,
                    element_get(io->y_NF, i, a->dtype) + element_get(io->b_F, i % F, a->dtype));
    return STATUS_OK;
}

enum status reference_bias_backward(const struct bias *a, const struct bias_bwd *io,
                                    struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t F = (size_t)a->F;
    for (size_t f = 0; f < F; f++) {
        double sum = 0;
        for (size_t n = 0; n < (size_t)a->N; n++)
            sum += element_get(io->dy_NF, n * F + f, a->dtype);
        io->db_F[f] += (float)sum;
    }
    return STATUS_OK;
}
