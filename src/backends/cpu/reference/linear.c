// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"

#include "ops/float8.h"

#define get element_get
#define set element_set

static float dequantize_scale(const struct linear *a, const struct float8_scale *x,
                              const struct float8_scale *y)
{
    return a->float8 ? x->inverse * y->inverse : 1;
}

enum status reference_linear_forward(const struct linear *a, const struct linear_fwd *io,
                                     struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t N = (size_t)a->N, D = (size_t)a->D, F = (size_t)a->F;
    enum dtype operand = linear_operand(a);
    float scale = dequantize_scale(a, io->x_scale, io->w_scale);
    const void *x = io->x_ND, *w = io->w_FD;
    for (size_t n = 0; n < N; n++)
        for (size_t f = 0; f < F; f++) {
            float sum = 0;
            for (size_t d = 0; d < D; d++)
                sum += get(x, n * D + d, operand) * get(w, f * D + d, operand);
            if (a->float8) sum *= scale;
            if (a->accumulate) sum += get(linear_added(io), n * F + f, a->dtype);
            set(io->y_NF, n * F + f, a->dtype, sum);
        }
    return STATUS_OK;
}

enum status reference_linear_backward_input(const struct linear *a,
                                            const struct linear_bwd_input *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t N = (size_t)a->N, D = (size_t)a->D, F = (size_t)a->F;
    enum dtype operand = linear_operand(a);
    float scale = dequantize_scale(a, io->dy_scale, io->w_scale);
    const void *dy = io->dy_NF, *w = io->w_FD;
    for (size_t n = 0; n < N; n++)
        for (size_t d = 0; d < D; d++) {
            float sum = 0;
            for (size_t f = 0; f < F; f++)
                sum += get(dy, n * F + f, operand) * get(w, f * D + d, operand);
            if (a->float8) sum *= scale;
            if (a->accumulate) sum += get(io->dx_ND, n * D + d, a->dtype);
            set(io->dx_ND, n * D + d, a->dtype, sum);
        }
    return STATUS_OK;
}

enum status reference_linear_backward_weight(const struct linear *a,
                                             const struct linear_bwd_weight *io,
                                             struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t N = (size_t)a->N, D = (size_t)a->D, F = (size_t)a->F;
    enum dtype operand = linear_operand(a);
    float scale = dequantize_scale(a, io->dy_scale, io->x_scale);
    const void *dy = io->dy_NF, *x = io->x_ND;
    for (size_t f = 0; f < F; f++)
        for (size_t d = 0; d < D; d++) {
            float sum = 0;
            for (size_t n = 0; n < N; n++)
                sum += get(dy, n * F + f, operand) * get(x, n * D + d, operand);
            if (a->float8) sum *= scale;
            io->dw_FD[f * D + d] = a->accumulate ? io->dw_FD[f * D + d] + sum : sum;
        }
    return STATUS_OK;
}
