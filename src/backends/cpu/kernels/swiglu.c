/* swiglu.c (cpu) -- one pass over the rows, a register at a time; bound by memory bandwidth.
 *
 * If all tensors are in the panel layout, each row of panels is treated as one long row, since gate
 * and up elements are equally far apart.  If up does not start at a panel boundary, out is stored
 * by rows (panel_layout_used), and only gate and up are addressed by panel. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

enum { PREFETCH_AHEAD = 1024 }; /* elements of a long row */

static inline vector out_of(enum dtype dtype, vector gate, vector up)
{
    return gate * vector_sigmoid(dtype, gate) * up;
}

/* The rows to process. paneled: gate and up are in the panel layout, unlike out. prefetch and
 * out_prefetch: distances, to the next row or ahead in a long row. */
struct swiglu_rows {
    size_t N, F;
    bool paneled;
    size_t prefetch, out_prefetch;
};

static inline void forward_row(const struct swiglu_fwd *io, enum dtype dtype, bool paneled,
                               const struct swiglu_rows *r, size_t n)
{
    size_t F = r->F, f = 0, from = n * 2 * F, to = n * F;
    for (; f + 2 * LANES <= F && !paneled; f += 2 * LANES) {
        struct vectors gate = vector_get_two(io->gate_up_N2F, from + f, dtype);
        struct vectors up = vector_get_two(io->gate_up_N2F, from + F + f, dtype);
        vector_prefetch(io->gate_up_N2F, from + f + r->prefetch, dtype);
        vector_prefetch(io->gate_up_N2F, from + F + f + r->prefetch, dtype);
        vector_prefetch(io->out_NF, to + f + r->out_prefetch, dtype);
        up.a = out_of(dtype, gate.a, up.a), up.b = out_of(dtype, gate.b, up.b);
        vector_set_two(io->out_NF, to + f, dtype, up);
    }
    for (; f < F; f += LANES) {
        size_t count = F - f < LANES ? F - f : LANES;
        vector gate = vector_get(io->gate_up_N2F, panel_offset(paneled, n, f, 2 * F), dtype, count);
        vector up =
            vector_get(io->gate_up_N2F, panel_offset(paneled, n, F + f, 2 * F), dtype, count);
        vector_set(io->out_NF, to + f, dtype, count, out_of(dtype, gate, up));
    }
}

/* Overwrites gate and up with their gradients. */
static inline void gradients(enum dtype dtype, vector *gate, vector *up, vector dout)
{
    vector sigmoid = vector_sigmoid(dtype, *gate), dsilu = dout * sigmoid, dup = dsilu * *gate;
    *gate = dsilu * *up * (1.0f + *gate * (1.0f - sigmoid));
    *up = dup;
}

static inline void backward_row(const struct swiglu_bwd *io, enum dtype dtype, bool paneled,
                                const struct swiglu_rows *r, size_t n)
{
    size_t F = r->F, f = 0, to = n * 2 * F, from = n * F;
    for (; f + 2 * LANES <= F && !paneled; f += 2 * LANES) {
        struct vectors gate = vector_get_two(io->gate_up_N2F, to + f, dtype);
        struct vectors up = vector_get_two(io->gate_up_N2F, to + F + f, dtype);
        struct vectors dout = vector_get_two(io->dout_NF, from + f, dtype);
        vector_prefetch(io->gate_up_N2F, to + f + r->prefetch, dtype);
        vector_prefetch(io->gate_up_N2F, to + F + f + r->prefetch, dtype);
        vector_prefetch(io->dout_NF, from + f + r->out_prefetch, dtype);
        gradients(dtype, &gate.a, &up.a, dout.a), gradients(dtype, &gate.b, &up.b, dout.b);
        vector_set_two(io->dgate_up_N2F, to + f, dtype, gate);
        vector_set_two(io->dgate_up_N2F, to + F + f, dtype, up);
    }
    for (; f < F; f += LANES) {
        size_t count = F - f < LANES ? F - f : LANES;
        size_t first = panel_offset(paneled, n, f, 2 * F),
               second = panel_offset(paneled, n, F + f, 2 * F);
        vector gate = vector_get(io->gate_up_N2F, first, dtype, count);
        vector up = vector_get(io->gate_up_N2F, second, dtype, count);
        gradients(dtype, &gate, &up, vector_get(io->dout_NF, from + f, dtype, count));
        vector_set(io->dgate_up_N2F, first, dtype, count, gate);
        vector_set(io->dgate_up_N2F, second, dtype, count, up);
    }
}

static struct swiglu_rows swiglu_rows_of(const struct swiglu *a)
{
    size_t N = (size_t)a->N, F = (size_t)a->F;
    if (KERNEL(panel_layout_used)(a->is_packed, a->dtype, a->N, a->F))
        return (struct swiglu_rows){N / PANEL, F * PANEL, false, PREFETCH_AHEAD, PREFETCH_AHEAD};
    return (struct swiglu_rows){
        N, F, KERNEL(panel_layout_used)(a->is_packed, a->dtype, a->N, 2 * a->F), 2 * F, F};
}

/* With a constant dtype the compiler specializes each loop. */
enum status KERNEL(swiglu_forward)(const struct swiglu *a, const struct swiglu_fwd *io,
                                   struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    struct swiglu_rows r = swiglu_rows_of(a);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t n = 0; n < r.N; n++)
        if (a->dtype == F32)
            forward_row(io, F32, false, &r, n);
        else if (r.paneled)
            forward_row(io, BF16, true, &r, n);
        else
            forward_row(io, BF16, false, &r, n);
    return STATUS_OK;
}

enum status KERNEL(swiglu_backward)(const struct swiglu *a, const struct swiglu_bwd *io,
                                    struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    struct swiglu_rows r = swiglu_rows_of(a);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t n = 0; n < r.N; n++)
        if (a->dtype == F32)
            backward_row(io, F32, false, &r, n);
        else if (r.paneled)
            backward_row(io, BF16, true, &r, n);
        else
            backward_row(io, BF16, false, &r, n);
    return STATUS_OK;
}
