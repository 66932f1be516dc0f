// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

enum { PIECE = 256 }; /* elements at a time */

enum status KERNEL(swiglu_forward)(const struct swiglu *a, const struct swiglu_fwd *io,
                                   struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    size_t F = (size_t)a->F;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t n = 0; n < (size_t)a->N; n++)
        for (size_t f = 0; f < F; f += PIECE) {
            float gate[PIECE], up[PIECE];
            size_t at = n * 2 * F + f, count = F - f < PIECE ? F - f : PIECE;
            vector_load(io->gate_up_N2F, at, a->dtype, count, gate);
            vector_load(io->gate_up_N2F, at + F, a->dtype, count, up);
            for (size_t i = 0; i < count; i++) up[i] *= gate[i] / (1 + vector_exp(-gate[i]));
            vector_store(io->out_NF, n * F + f, a->dtype, count, up);
        }
    return STATUS_OK;
}

enum status KERNEL(swiglu_backward)(const struct swiglu *a, const struct swiglu_bwd *io,
                                    struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    size_t F = (size_t)a->F;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t n = 0; n < (size_t)a->N; n++)
        for (size_t f = 0; f < F; f += PIECE) {
            float gate[PIECE], up[PIECE], dout[PIECE];
            size_t at = n * 2 * F + f, count = F - f < PIECE ? F - f : PIECE;
            vector_load(io->gate_up_N2F, at, a->dtype, count, gate);
            vector_load(io->gate_up_N2F, at + F, a->dtype, count, up);
            vector_load(io->dout_NF, n * F + f, a->dtype, count, dout);
            for (size_t i = 0; i < count; i++) {
                float g = gate[i], sigmoid = 1 / (1 + vector_exp(-g));
                gate[i] = dout[i] * up[i] * sigmoid * (1 + g * (1 - sigmoid));
                up[i] = dout[i] * g * sigmoid;
            }
            vector_store(io->dgate_up_N2F, at, a->dtype, count, gate);
            vector_store(io->dgate_up_N2F, at + F, a->dtype, count, up);
        }
    return STATUS_OK;
}
