/* swiglu.c (cpu) -- one pass over the rows, a register at a time: forward as fast as a copy of what
 * it reads and writes. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

static inline void forward_step(const struct swiglu_fwd *io, enum dtype dtype, size_t F, size_t n,
                                size_t f, size_t count)
{
    size_t at = n * 2 * F + f;
    vector gate = vector_get(io->gate_up_N2F, at, dtype, count);
    vector up = vector_get(io->gate_up_N2F, at + F, dtype, count);
    vector_set(io->out_NF, n * F + f, dtype, count, gate * vector_sigmoid(dtype, gate) * up);
}

static inline void forward_row(const struct swiglu_fwd *io, enum dtype dtype, size_t F, size_t n)
{
    size_t f = 0, next = (n + 1) * 2 * F;
    for (; f + LANES <= F; f += LANES) {
        vector_ask(io->gate_up_N2F, next + f, dtype);
        vector_ask(io->gate_up_N2F, next + F + f, dtype);
        vector_ask(io->out_NF, (n + 1) * F + f, dtype);
        forward_step(io, dtype, F, n, f, LANES);
    }
    if (f < F) forward_step(io, dtype, F, n, f, F - f);
}

static inline void backward_step(const struct swiglu_bwd *io, enum dtype dtype, size_t F, size_t n,
                                 size_t f, size_t count)
{
    size_t at = n * 2 * F + f;
    vector gate = vector_get(io->gate_up_N2F, at, dtype, count);
    vector up = vector_get(io->gate_up_N2F, at + F, dtype, count);
    vector dout = vector_get(io->dout_NF, n * F + f, dtype, count);
    vector sigmoid = vector_sigmoid(dtype, gate), dsilu = dout * sigmoid;
    vector dgate = dsilu * up * (1.0f + gate * (1.0f - sigmoid));
    vector_set(io->dgate_up_N2F, at, dtype, count, dgate);
    vector_set(io->dgate_up_N2F, at + F, dtype, count, dsilu * gate);
}

static inline void backward_row(const struct swiglu_bwd *io, enum dtype dtype, size_t F, size_t n)
{
    size_t f = 0, next = (n + 1) * 2 * F;
    for (; f + LANES <= F; f += LANES) {
        vector_ask(io->gate_up_N2F, next + f, dtype);
        vector_ask(io->gate_up_N2F, next + F + f, dtype);
        vector_ask(io->dout_NF, (n + 1) * F + f, dtype);
        backward_step(io, dtype, F, n, f, LANES);
    }
    if (f < F) backward_step(io, dtype, F, n, f, F - f);
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
