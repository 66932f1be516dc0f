// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"

#include <math.h>

#define get element_get
#define set element_set

enum status reference_swiglu_forward(const struct swiglu *a, const struct swiglu_fwd *io,
                                     struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t F = (size_t)a->F;
    for (size_t n = 0; n < (size_t)a->N; n++)
        for (size_t f = 0; f < F; f++) {
            float gate = get(io->gate_up_N2F, n * 2 * F + f, a->dtype);
            float up = get(io->gate_up_N2F, n * 2 * F + F + f, a->dtype);
            set(io->out_NF, n * F + f, a->dtype, gate / (1 + expf(-gate)) * up);
        }
    return STATUS_OK;
}

/* silu'(x) = sigmoid(x) (1 + x (1 - sigmoid(x))) */
enum status reference_swiglu_backward(const struct swiglu *a, const struct swiglu_bwd *io,
                                      struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t F = (size_t)a->F;
    for (size_t n = 0; n < (size_t)a->N; n++)
        for (size_t f = 0; f < F; f++) {
            size_t at = n * 2 * F + f;
            float gate = get(io->gate_up_N2F, at, a->dtype);
            float up = get(io->gate_up_N2F, at + F, a->dtype);
            float dout = get(io->dout_NF, n * F + f, a->dtype), sigmoid = 1 / (1 + expf(-gate));
            set(io->dgate_up_N2F, at, a->dtype, dout * up * sigmoid * (1 + gate * (1 - sigmoid)));
            set(io->dgate_up_N2F, at + F, a->dtype, dout * gate * sigmoid);
        }
    return STATUS_OK;
}
