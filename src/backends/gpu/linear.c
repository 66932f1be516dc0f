// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include "backends/gpu/fp8.h"
#include "backends/gpu/gemm.h"
#include "backends/gpu/queue.h"

/* FP8 GEMMs need K contiguous in both operands (A B^T), as the matrix units do; so the backward
 * ones take the transposed copies. */
static bool is_fp8(const struct linear *l, const struct queue *queue)
{
    return l->float8 && ((const struct gpu_queue *)queue)->native_fp8;
}

static struct gemm gemm_of(const struct linear *l, int M, int N, int K, enum dtype out)
{
    enum gemm_type type = linear_operand(l) == F32 ? GEMM_F32 : GEMM_BF16;
    return (struct gemm){.M = M,
                         .N = N,
                         .K = K,
                         .a = type,
                         .b = type,
                         .out = out,
                         .scaled = l->float8,
                         .accumulate = l->accumulate};
}

enum status GPU_NAME(linear_forward)(const struct linear *l, const struct linear_fwd *io,
                                     struct queue *queue)
{
    struct gemm g = gemm_of(l, l->N, l->F, l->D, l->dtype);
    struct gemm_io gemm_io = {io->x_ND, io->w_FD,    linear_added(io),
                              io->y_NF, io->x_scale, io->w_scale};
    g.transpose_b = true;
    if (is_fp8(l, queue)) g.a = g.b = GEMM_E4M3;
    TRY(GPU_NAME(gemm)(&g, &gemm_io, queue));
    return STATUS_OK;
}

enum status GPU_NAME(linear_backward_input)(const struct linear *l,
                                            const struct linear_bwd_input *io, struct queue *queue)
{
    struct gemm g = gemm_of(l, l->N, l->D, l->F, l->dtype);
    struct gemm_io gemm_io = {io->dy_NF, io->w_FD, io->dx_ND, io->dx_ND, io->dy_scale, io->w_scale};
    if (is_fp8(l, queue)) {
        g.a = GEMM_E5M2, g.b = GEMM_E4M3, g.transpose_b = true;
        gemm_io.b = fp8_transposed(io->w_FD, l->F, l->D);
    }
    TRY(GPU_NAME(gemm)(&g, &gemm_io, queue));
    return STATUS_OK;
}

enum status GPU_NAME(linear_backward_weight)(const struct linear *l,
                                             const struct linear_bwd_weight *io,
                                             struct queue *queue)
{
    struct gemm g = gemm_of(l, l->F, l->D, l->N, F32);
    struct gemm_io gemm_io = {io->dy_NF, io->x_ND, io->dw_FD, io->dw_FD, io->dy_scale, io->x_scale};
    g.transpose_a = true;
    if (is_fp8(l, queue)) {
        g.a = GEMM_E5M2, g.b = GEMM_E4M3, g.transpose_a = false, g.transpose_b = true;
        gemm_io.a = fp8_transposed(io->dy_NF, l->N, l->F);
        gemm_io.b = fp8_transposed(io->x_ND, l->N, l->D);
    }
    TRY(GPU_NAME(gemm)(&g, &gemm_io, queue));
    return STATUS_OK;
}
