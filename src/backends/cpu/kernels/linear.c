// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/vector.h"
#include "backends/cpu/queue.h"
#include "backends/cpu/tuner.h"
#include "ops/float8.h"

enum { FEW = 8 }; /* tokens for which reading the weights once is all there is to do */

/* NULL while measuring. */
static float inverse(const struct linear *l, const struct float8_scale *one,
                     const struct float8_scale *other)
{
    return l->float8 && one && other ? one->inverse * other->inverse : 1;
}

static struct product_shape shape_of(const struct linear *l, int M, int N, int K, float scale)
{
    return (struct product_shape){.M = M,
                                  .N = N,
                                  .K = K,
                                  .dtype = linear_operand(l),
                                  .out = l->dtype,
                                  .accumulate = l->accumulate,
                                  .scaled = l->float8,
                                  .scale = scale};
}

static bool x_keeps(const struct linear *l)
{
    return KERNEL(panels_keep)(l->x_private, l->dtype, l->N, l->D);
}
static bool y_keeps(const struct linear *l)
{
    return KERNEL(panels_keep)(l->y_private, l->dtype, l->N, l->F);
}

static enum status multiply(const struct product_shape *s, const struct product_io *io,
                            struct queue *on)
{
    if (s->dtype == BF16)
        TRY(KERNEL(gemm)(s, tuner_way(((struct cpu_queue *)on)->tuner, s, KERNEL(gemm), on), io,
                         on));
    else
        TRY(product_multiply(s, io, on));
    return STATUS_OK;
}

/* One output of each token: its row of weights meets every token. */
static void output_of_few(const struct linear *l, const struct linear_fwd *io, const float *x_ND,
                          size_t f)
{
    enum { PIECE = 1024 };
    size_t N = (size_t)l->N, D = (size_t)l->D;
    float sums[FEW] = {0}, w[PIECE];
    for (size_t d = 0; d < D; d += PIECE) {
        size_t count = D - d < PIECE ? D - d : PIECE;
        vector_load(io->w_FD, f * D + d, linear_operand(l), count, w);
        for (size_t n = 0; n < N; n++) {
            const float *x = x_ND + n * D + d;
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (size_t i = 0; i < count; i++) sum += x[i] * w[i];
            sums[n] += sum;
        }
    }
    for (size_t n = 0; n < N; n++) {
        size_t at = n * (size_t)l->F + f;
        float old = 0;
        if (l->accumulate) vector_load(linear_added(io), at, l->dtype, 1, &old);
        old += inverse(l, io->x_scale, io->w_scale) * sums[n];
        vector_store(io->y_NF, at, l->dtype, 1, &old);
    }
}

/* Decoding: bound by reading the weights, which are taken as they lie. */
static enum status forward_few(const struct linear *l, const struct linear_fwd *io,
                               struct queue *on)
{
    size_t n = (size_t)l->N * (size_t)l->D, mark = arena_mark(&on->scratch);
    float *x = arena_take(&on->scratch, n, sizeof *x);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    vector_load(io->x_ND, 0, linear_operand(l), n, x);
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t f = 0; f < (size_t)l->F; f++) output_of_few(l, io, x, f);
    return STATUS_OK;
}

enum status KERNEL(linear_forward)(const struct linear *l, const struct linear_fwd *io,
                                   struct queue *on)
{
    if (l->N <= FEW) {
        TRY(forward_few(l, io, on));
        return STATUS_OK;
    }
    struct product_shape s = shape_of(l, l->N, l->F, l->D, inverse(l, io->x_scale, io->w_scale));
    s.transpose_b = true, s.a_paneled = x_keeps(l), s.c_paneled = y_keeps(l);
    struct product_io of = {io->x_ND, io->w_FD, linear_added(io), io->y_NF};
    TRY(multiply(&s, &of, on));
    return STATUS_OK;
}

enum status KERNEL(linear_backward_input)(const struct linear *l, const struct linear_bwd_input *io,
                                          struct queue *on)
{
    struct product_shape s = shape_of(l, l->N, l->D, l->F, inverse(l, io->dy_scale, io->w_scale));
    s.a_paneled = y_keeps(l), s.c_paneled = x_keeps(l);
    TRY(multiply(&s, &(struct product_io){io->dy_NF, io->w_FD, io->dx_ND, io->dx_ND}, on));
    return STATUS_OK;
}

enum status KERNEL(linear_backward_weight)(const struct linear *l,
                                           const struct linear_bwd_weight *io, struct queue *on)
{
    struct product_shape s = shape_of(l, l->F, l->D, l->N, inverse(l, io->dy_scale, io->x_scale));
    s.transpose_a = true, s.a_paneled = y_keeps(l), s.b_paneled = x_keeps(l);
    s.out = F32;
    TRY(multiply(&s, &(struct product_io){io->dy_NF, io->x_ND, io->dw_FD, io->dw_FD}, on));
    return STATUS_OK;
}
