/* swiglu.c (cpu) -- one pass over the rows, a register at a time: forward as fast as a copy of what
 * it reads and writes. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

static inline vector out_of(enum dtype dtype, vector gate, vector up)
{
    return gate * vector_sigmoid(dtype, gate) * up;
}

static inline void forward_row(const struct swiglu_fwd *io, enum dtype dtype, size_t F, size_t n)
{
    size_t f = 0, at = n * 2 * F, to = n * F;
    for (; f + 2 * LANES <= F; f += 2 * LANES) {
        struct vectors gate = vector_get_two(io->gate_up_N2F, at + f, dtype);
        struct vectors up = vector_get_two(io->gate_up_N2F, at + F + f, dtype);
        vector_ask(io->gate_up_N2F, at + 2 * F + f, dtype); /* the next row */
        vector_ask(io->gate_up_N2F, at + 3 * F + f, dtype);
        vector_ask(io->out_NF, to + F + f, dtype);
        up.a = out_of(dtype, gate.a, up.a), up.b = out_of(dtype, gate.b, up.b);
        vector_set_two(io->out_NF, to + f, dtype, up);
    }
    for (; f < F; f += LANES) {
        size_t count = F - f < LANES ? F - f : LANES;
        vector gate = vector_get(io->gate_up_N2F, at + f, dtype, count);
        vector up = vector_get(io->gate_up_N2F, at + F + f, dtype, count);
        vector_set(io->out_NF, to + f, dtype, count, out_of(dtype, gate, up));
    }
}

/* Gate and up become their gradients. */
static inline void gradients(enum dtype dtype, vector *gate, vector *up, vector dout)
{
    vector sigmoid = vector_sigmoid(dtype, *gate), dsilu = dout * sigmoid, dup = dsilu * *gate;
    *gate = dsilu * *up * (1.0f + *gate * (1.0f - sigmoid));
    *up = dup;
}

static inline void backward_row(const struct swiglu_bwd *io, enum dtype dtype, size_t F, size_t n)
{
    size_t f = 0, at = n * 2 * F, from = n * F;
    for (; f + 2 * LANES <= F; f += 2 * LANES) {
        struct vectors gate = vector_get_two(io->gate_up_N2F, at + f, dtype);
        struct vectors up = vector_get_two(io->gate_up_N2F, at + F + f, dtype);
        struct vectors dout = vector_get_two(io->dout_NF, from + f, dtype);
        vector_ask(io->gate_up_N2F, at + 2 * F + f, dtype); /* the next row */
        vector_ask(io->gate_up_N2F, at + 3 * F + f, dtype);
        vector_ask(io->dout_NF, from + F + f, dtype);
        gradients(dtype, &gate.a, &up.a, dout.a), gradients(dtype, &gate.b, &up.b, dout.b);
        vector_set_two(io->dgate_up_N2F, at + f, dtype, gate);
        vector_set_two(io->dgate_up_N2F, at + F + f, dtype, up);
    }
    for (; f < F; f += LANES) {
        size_t count = F - f < LANES ? F - f : LANES;
        vector gate = vector_get(io->gate_up_N2F, at + f, dtype, count);
        vector up = vector_get(io->gate_up_N2F, at + F + f, dtype, count);
        gradients(dtype, &gate, &up, vector_get(io->dout_NF, from + f, dtype, count));
        vector_set(io->dgate_up_N2F, at + f, dtype, count, gate);
        vector_set(io->dgate_up_N2F, at + F + f, dtype, count, up);
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
