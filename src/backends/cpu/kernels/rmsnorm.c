// SPDX-License-Identifier: Apache-2.0
#include "ops/rmsnorm.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>
#include <omp.h>

enum { ROWS = 64 }; /* rows of one partial sum of dw */

static void round_to(enum dtype dtype, size_t n, float *x)
{
    if (dtype == BF16)
        for (size_t i = 0; i < n; i++) x[i] = bf16_to_f32(bf16_from_f32(x[i]));
}

enum status KERNEL(rmsnorm_forward)(const struct rmsnorm *a, const struct rmsnorm_fwd *io,
                                    struct queue *on)
{
    size_t D = (size_t)a->D, mark = arena_mark(&on->scratch);
    float *w = arena_take(&on->scratch, D, sizeof *w);
    float *rows = arena_take(&on->scratch, (size_t)on->num_threads * D, sizeof *rows);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    vector_load(io->w_D, 0, a->dtype, D, w);
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (int n = 0; n < a->N; n++) {
        float *x = rows + (size_t)omp_get_thread_num() * D, squares = 0;
        size_t at = (size_t)n * D;
        vector_load(io->x_ND, at, a->dtype, D, x);
#pragma omp simd reduction(+ : squares)
        for (size_t d = 0; d < D; d++) squares += x[d] * x[d];
        float rstd = 1 / sqrtf(squares / (float)a->D + a->eps);
        for (size_t d = 0; d < D; d++) x[d] *= rstd;
        round_to(a->dtype, D, x);
        for (size_t d = 0; d < D; d++) x[d] *= w[d];
        vector_store(io->y_ND, at, a->dtype, D, x);
        io->rstd_N[n] = rstd;
    }
    return STATUS_OK;
}

/* One row: dx, and its part of dw added to dw_D.  x, dy and dx are rows of working memory. */
static void backward_row(const struct rmsnorm *a, const struct rmsnorm_bwd *io, size_t n,
                         const float *w, float *x, float *dy, float *dx, float *dw_D)
{
    size_t D = (size_t)a->D, at = n * D;
    float rstd = io->rstd_N[n], dot = 0;
    vector_load(io->x_ND, at, a->dtype, D, x);
    vector_load(io->dy_ND, at, a->dtype, D, dy);
    if (a->accumulate)
        vector_load(io->dx_ND, at, a->dtype, D, dx);
    else
        memset(dx, 0, D * sizeof *dx);
    for (size_t d = 0; d < D; d++) x[d] *= rstd;
#pragma omp simd reduction(+ : dot)
    for (size_t d = 0; d < D; d++) dot += dy[d] * w[d] * x[d];
    dot /= (float)a->D;
    for (size_t d = 0; d < D; d++) dx[d] += rstd * (dy[d] * w[d] - x[d] * dot);
    round_to(a->dtype, D, x);
    for (size_t d = 0; d < D; d++) dw_D[d] += dy[d] * x[d];
    vector_store(io->dx_ND, at, a->dtype, D, dx);
}

enum status KERNEL(rmsnorm_backward)(const struct rmsnorm *a, const struct rmsnorm_bwd *io,
                                     struct queue *on)
{
    size_t D = (size_t)a->D, mark = arena_mark(&on->scratch);
    int blocks = (a->N + ROWS - 1) / ROWS;
    float *w = arena_take(&on->scratch, D, sizeof *w);
    float *rows = arena_take(&on->scratch, (size_t)on->num_threads * 3 * D, sizeof *rows);
    float *parts = arena_take(&on->scratch, (size_t)blocks * D, sizeof *parts);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    vector_load(io->w_D, 0, a->dtype, D, w);
#pragma omp parallel for schedule(static) num_threads(on->num_threads)
    for (int block = 0; block < blocks; block++) {
        float *x = rows + (size_t)omp_get_thread_num() * 3 * D;
        float *part = parts + (size_t)block * D;
        int end = block * ROWS + ROWS < a->N ? block * ROWS + ROWS : a->N;
        memset(part, 0, D * sizeof *part);
        for (int n = block * ROWS; n < end; n++)
            backward_row(a, io, (size_t)n, w, x, x + D, x + 2 * D, part);
    }
    for (size_t block = 0; block < (size_t)blocks; block++)
        for (size_t d = 0; d < D; d++) io->dw_D[d] += parts[block * D + d];
    return STATUS_OK;
}
