// SPDX-License-Identifier: Apache-2.0
#include "ops/rmsnorm.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"

#include <math.h>

#define get element_get
#define set element_set

/* x * rstd as the forward pass computes it: rounded to dtype before the weight. */
static float normalized(const struct rmsnorm *a, float x, float rstd)
{
    return a->dtype == F32 ? x * rstd : bf16_to_f32(bf16_from_f32(x * rstd));
}

enum status reference_rmsnorm_forward(const struct rmsnorm *a, const struct rmsnorm_fwd *io,
                                      struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t D = (size_t)a->D;
    for (size_t n = 0; n < (size_t)a->N; n++) {
        size_t at = rmsnorm_row(a, n);
        float squares = 0;
        for (size_t d = 0; d < D; d++) {
            float x = get(io->x_ND, at + d, a->dtype);
            squares += x * x;
        }
        if (a->part == RMSNORM_SUMS) {
            io->rstd_N[n] = squares;
            continue;
        }
        if (a->part == RMSNORM_APPLY) squares = io->rstd_N[n];
        float rstd = 1 / sqrtf(squares / (float)rmsnorm_width(a) + a->eps);
        for (size_t d = 0; d < D; d++) {
            float x = get(io->x_ND, at + d, a->dtype);
            set(io->y_ND, at + d, a->dtype, normalized(a, x, rstd) * get(io->w_D, d, a->dtype));
        }
        io->rstd_N[n] = rstd;
    }
    return STATUS_OK;
}

/* With h = x rstd and g = dy w: dx = rstd (g - h mean(g h)), dw = sum over rows of dy h. */
enum status reference_rmsnorm_backward(const struct rmsnorm *a, const struct rmsnorm_bwd *io,
                                       struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t D = (size_t)a->D;
    for (size_t n = 0; n < (size_t)a->N; n++) {
        size_t at = rmsnorm_row(a, n);
        float rstd = io->rstd_N[n], dot = 0;
        for (size_t d = 0; d < D; d++) {
            float h = get(io->x_ND, at + d, a->dtype) * rstd;
            dot += get(io->dy_ND, at + d, a->dtype) * get(io->w_D, d, a->dtype) * h;
        }
        if (a->part == RMSNORM_SUMS) {
            io->dot_N[n] = dot;
            continue;
        }
        if (a->part == RMSNORM_APPLY) dot = io->dot_N[n];
        dot /= (float)rmsnorm_width(a);
        for (size_t d = 0; d < D; d++) {
            float dy = get(io->dy_ND, at + d, a->dtype);
            float x = get(io->x_ND, at + d, a->dtype);
            float dx = rstd * (dy * get(io->w_D, d, a->dtype) - x * rstd * dot);
            if (a->accumulate) dx += get(io->dx_ND, at + d, a->dtype);
            io->dw_D[d] += dy * normalized(a, x, rstd);
            set(io->dx_ND, at + d, a->dtype, dx);
        }
    }
    return STATUS_OK;
}
