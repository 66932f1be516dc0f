// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

enum { PIECE = 256 }; /* elements at a time */

static size_t piece_of(size_t F, size_t f) { return F - f < PIECE ? F - f : PIECE; }

static inline void forward_row(const struct swiglu_fwd *io, enum dtype dtype, size_t F, size_t n)
{
    for (size_t f = 0; f < F; f += PIECE) {
        float gate[PIECE], up[PIECE];
        size_t at = n * 2 * F + f, count = piece_of(F, f);
        vector_load(io->gate_up_N2F, at, dtype, count, gate);
        vector_load(io->gate_up_N2F, at + F, dtype, count, up);
        for (size_t i = 0; i < count; i++) up[i] *= gate[i] / (1 + vector_exp_for(dtype, -gate[i]));
        vector_store(io->out_NF, n * F + f, dtype, count, up);
    }
}

static inline void backward_row(const struct swiglu_bwd *io, enum dtype dtype, size_t F, size_t n)
{
    for (size_t f = 0; f < F; f += PIECE) {
        float gate[PIECE], up[PIECE], dout[PIECE];
        size_t at = n * 2 * F + f, count = piece_of(F, f);
        vector_load(io->gate_up_N2F, at, dtype, count, gate);
        vector_load(io->gate_up_N2F, at + F, dtype, count, up);
        vector_load(io->dout_NF, n * F + f, dtype, count, dout);
        for (size_t i = 0; i < count; i++) {
            float g = gate[i], sigmoid = 1 / (1 + vector_exp_for(dtype, -g));
            gate[i] = dout[i] * up[i] * sigmoid * (1 + g * (1 - sigmoid));
            up[i] = dout[i] * g * sigmoid;
        }
        vector_store(io->dgate_up_N2F, at, dtype, count, gate);
        vector_store(io->dgate_up_N2F, at + F, dtype, count, up);
    }
}

/* A dtype that the compiler knows makes each loop one of its own. */
enum status KERNEL(swiglu_forward)(const struct swiglu *a, const struct swiglu_fwd *io,
                                   struct queue *on)
{
    if (on->measuring) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t n = 0; n < (size_t)a->N; n++)
        if (a->dtype == F32)
            forward_row(io, F32, (size_t)a->F, n);
        else
            forward_row(io, BF16, (size_t)a->F, n);
    return STATUS_OK;
}

enum status KERNEL(swiglu_backward)(const struct swiglu *a, const struct swiglu_bwd *io,
                                    struct queue *on)
{
    if (on->measuring) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t n = 0; n < (size_t)a->N; n++)
        if (a->dtype == F32)
            backward_row(io, F32, (size_t)a->F, n);
        else
            backward_row(io, BF16, (size_t)a->F, n);
    return STATUS_OK;
}
