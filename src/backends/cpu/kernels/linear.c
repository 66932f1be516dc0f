// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/kernels/linear_decode.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/queue.h"
#include "backends/cpu/tuner.h"
#include "ops/float8.h"

/* The scales are NULL during a sizing pass. */
static float dequantize_scale(const struct linear *l, const struct float8_scale *one,
                              const struct float8_scale *other)
{
    return l->float8 && one && other ? one->inverse * other->inverse : 1;
}

static struct gemm_shape shape_of(const struct linear *l, int M, int N, int K, float scale)
{
    return (struct gemm_shape){.M = M,
                               .N = N,
                               .K = K,
                               .dtype = linear_operand(l),
                               .out = l->dtype,
                               .accumulate = l->accumulate,
                               .scaled = l->float8,
                               .scale = scale};
}

static bool x_paneled(const struct linear *l)
{
    return KERNEL(panel_layout_used)(l->x_packed, l->dtype, l->N, l->D);
}
static bool y_paneled(const struct linear *l)
{
    return KERNEL(panel_layout_used)(l->y_packed, l->dtype, l->N, l->F);
}

static enum status gemm(const struct gemm_shape *s, const struct gemm_buffers *io,
                        struct queue *queue)
{
    if (s->dtype == BF16)
        TRY(KERNEL(gemm)(s,
                         tuner_blocking(((struct cpu_queue *)queue)->tuner, s, KERNEL(gemm), queue),
                         io, queue));
    else if (queue->thread_invariant)
        TRY(KERNEL(gemm)(s, gemm_blocking_at(0), io, queue));
    else
        TRY(onednn_gemm(((struct cpu_queue *)queue)->onednn, s, io, queue));
    return STATUS_OK;
}

enum status KERNEL(linear_forward)(const struct linear *l, const struct linear_fwd *io,
                                   struct queue *queue)
{
    float scale = dequantize_scale(l, io->x_scale, io->w_scale);
    if (KERNEL(linear_decode_used)(l) && !x_paneled(l) && !y_paneled(l)) {
        TRY(KERNEL(linear_decode)(l, io, scale, queue));
        return STATUS_OK;
    }
    struct gemm_shape s = shape_of(l, l->N, l->F, l->D, scale);
    s.transpose_b = true, s.a_paneled = x_paneled(l), s.c_paneled = y_paneled(l);
    struct gemm_buffers of = {io->x_ND, io->w_FD, linear_added(io), io->y_NF};
    TRY(gemm(&s, &of, queue));
    return STATUS_OK;
}

enum status KERNEL(linear_backward_input)(const struct linear *l, const struct linear_bwd_input *io,
                                          struct queue *queue)
{
    struct gemm_shape s =
        shape_of(l, l->N, l->D, l->F, dequantize_scale(l, io->dy_scale, io->w_scale));
    s.a_paneled = y_paneled(l), s.c_paneled = x_paneled(l);
    TRY(gemm(&s, &(struct gemm_buffers){io->dy_NF, io->w_FD, io->dx_ND, io->dx_ND}, queue));
    return STATUS_OK;
}

enum status KERNEL(linear_backward_weight)(const struct linear *l,
                                           const struct linear_bwd_weight *io, struct queue *queue)
{
    struct gemm_shape s =
        shape_of(l, l->F, l->D, l->N, dequantize_scale(l, io->dy_scale, io->x_scale));
    s.transpose_a = true, s.a_paneled = y_paneled(l), s.b_paneled = x_paneled(l);
    s.out = F32;
    TRY(gemm(&s, &(struct gemm_buffers){io->dy_NF, io->x_ND, io->dw_FD, io->dw_FD}, queue));
    return STATUS_OK;
}
