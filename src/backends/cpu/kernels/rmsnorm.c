// SPDX-License-Identifier: Apache-2.0
#include "ops/rmsnorm.h"
#include "backends/cpu/element.h"
#include "backends/cpu/kernels/kernels.h"
#include "tensor/queue.h"

#include <math.h>
#include <stdbool.h>

enum { ROWS = 64 }; /* rows of one partial sum of dw */

/* As a number of that dtype. */
static inline float rounded(enum dtype dtype, float x)
{
    return dtype == F32 ? x : bf16_to_f32(bf16_from_f32(x));
}

static inline void forward_row(const struct rmsnorm *a, enum dtype dtype,
                               const struct rmsnorm_fwd *io, size_t n)
{
    const void *x_ND = io->x_ND, *w_D = io->w_D;
    void *y_ND = io->y_ND;
    size_t D = (size_t)a->D, at = n * D;
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (size_t d = 0; d < D; d++) {
        float x = element_get(x_ND, at + d, dtype);
        squares += x * x;
    }
    float rstd = 1 / sqrtf(squares / (float)a->D + a->eps);
#pragma omp simd
    for (size_t d = 0; d < D; d++) {
        float x = rounded(dtype, element_get(x_ND, at + d, dtype) * rstd);
        element_put(y_ND, at + d, dtype, x * element_get(w_D, d, dtype));
    }
    io->rstd_N[n] = rstd;
}

enum status KERNEL(rmsnorm_forward)(const struct rmsnorm *a, const struct rmsnorm_fwd *io,
                                    struct queue *on)
{
    if (on->measuring) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t n = 0; n < (size_t)a->N; n++)
        if (a->dtype == F32)
            forward_row(a, F32, io, n);
        else
            forward_row(a, BF16, io, n);
    return STATUS_OK;
}

/* One row: dx, and its part of dw added to dw_D. */
static inline void backward_row(const struct rmsnorm *a, enum dtype dtype, bool accumulate,
                                const struct rmsnorm_bwd *io, size_t n, float *restrict dw_D)
{
    const void *x_ND = io->x_ND, *w_D = io->w_D, *dy_ND = io->dy_ND;
    void *dx_ND = io->dx_ND;
    size_t D = (size_t)a->D, at = n * D;
    float rstd = io->rstd_N[n], dot = 0;
#pragma omp simd reduction(+ : dot)
    for (size_t d = 0; d < D; d++)
        dot += element_get(dy_ND, at + d, dtype) * element_get(w_D, d, dtype) *
               (element_get(x_ND, at + d, dtype) * rstd);
    dot /= (float)a->D;
#pragma omp simd
    for (size_t d = 0; d < D; d++) {
        float x = element_get(x_ND, at + d, dtype) * rstd;
        float dy = element_get(dy_ND, at + d, dtype);
        float dx = rstd * (dy * element_get(w_D, d, dtype) - x * dot);
        if (accumulate) dx += element_get(dx_ND, at + d, dtype);
        element_put(dx_ND, at + d, dtype, dx);
        dw_D[d] += dy * rounded(dtype, x);
    }
}

static inline void backward_rows(const struct rmsnorm *a, enum dtype dtype,
                                 const struct rmsnorm_bwd *io, size_t begin, size_t end,
                                 float *dw_D)
{
    for (size_t n = begin; n < end; n++)
        if (a->accumulate)
            backward_row(a, dtype, true, io, n, dw_D);
        else
            backward_row(a, dtype, false, io, n, dw_D);
}

enum status KERNEL(rmsnorm_backward)(const struct rmsnorm *a, const struct rmsnorm_bwd *io,
                                     struct queue *on)
{
    size_t N = (size_t)a->N, D = (size_t)a->D, blocks = (N + ROWS - 1) / ROWS;
    size_t mark = arena_mark(&on->scratch);
    float *parts = arena_take(&on->scratch, blocks * D, sizeof *parts);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (size_t block = 0; block < blocks; block++) {
        size_t begin = block * ROWS, end = begin + ROWS < N ? begin + ROWS : N;
        float *part = parts + block * D;
        memset(part, 0, D * sizeof *part);
        if (a->dtype == F32)
            backward_rows(a, F32, io, begin, end, part);
        else
            backward_rows(a, BF16, io, begin, end, part);
    }
    for (size_t block = 0; block < blocks; block++)
        for (size_t d = 0; d < D; d++) io->dw_D[d] += parts[block * D + d];
    return STATUS_OK;
}
