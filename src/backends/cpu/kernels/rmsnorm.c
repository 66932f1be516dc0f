/* rmsnorm.c (cpu) -- two passes over a row; the second reads it from L1. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/rmsnorm.h"
#include "backends/cpu/kernels/column_sums.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>
#include <stdbool.h>

/* Also prefetches the next row. */
static inline float sum_squares(enum dtype dtype, const void *x_ND, size_t at, size_t D)
{
    vector even = {0}, odd = {0};
    size_t d = 0;
    for (; d + 2 * LANES <= D; d += 2 * LANES) {
        struct vectors x = vector_get_two(x_ND, at + d, dtype);
        vector_prefetch(x_ND, at + 2 * D + d, dtype);
        even += x.a * x.a, odd += x.b * x.b;
    }
    for (; d < D; d += LANES) {
        vector x = vector_get(x_ND, at + d, dtype, D - d < LANES ? D - d : LANES);
        even += x * x;
    }
    return vector_reduce_sum(even + odd);
}

/* A case that the loops are specialized for. */
struct row_case {
    enum dtype dtype;
    bool paneled;    /* y and dy are in the panel layout */
    bool accumulate; /* dx is added to */
    size_t D;
};

/* `at`: where the row begins in x, and unless paneled in y. */
static inline size_t y_offset(struct row_case c, size_t row, size_t at, size_t column)
{
    return c.paneled ? panel_offset(true, row, column, c.D) : at + column;
}

/* From an element of y to the same one of the next row, which is prefetched. */
static inline size_t next_row(struct row_case c) { return c.paneled ? PANEL * c.D : c.D; }

static inline void forward_row(struct row_case c, const struct rmsnorm *a,
                               const struct rmsnorm_fwd *io, size_t n)
{
    const enum dtype dtype = c.dtype;
    size_t D = c.D, at = rmsnorm_row(a, n), d = 0;
    bool has_sum = a->part == RMSNORM_APPLY;
    float squares = has_sum ? io->rstd_N[n] : sum_squares(dtype, io->x_ND, at, D);
    float rstd = 1 / sqrtf(squares / (float)rmsnorm_width(a) + a->eps);
    if (a->part == RMSNORM_SUMS) {
        io->rstd_N[n] = squares;
        return;
    }
    for (; d + 2 * LANES <= D; d += 2 * LANES) {
        struct vectors x = vector_get_two(io->x_ND, at + d, dtype);
        struct vectors w = vector_get_two(io->w_D, d, dtype);
        vector_prefetch(io->y_ND, y_offset(c, n, at, d) + next_row(c), dtype);
        x.a = w.a * vector_round_to(dtype, x.a * rstd),
        x.b = w.b * vector_round_to(dtype, x.b * rstd);
        vector_set_two(io->y_ND, y_offset(c, n, at, d), dtype, x);
    }
    for (; d < D; d += LANES) {
        size_t count = D - d < LANES ? D - d : LANES;
        vector x = vector_round_to(dtype, vector_get(io->x_ND, at + d, dtype, count) * rstd);
        vector_set(io->y_ND, y_offset(c, n, at, d), dtype, count,
                   x * vector_get(io->w_D, d, dtype, count));
    }
    io->rstd_N[n] = rstd;
}

enum status KERNEL(rmsnorm_forward)(const struct rmsnorm *a, const struct rmsnorm_fwd *io,
                                    struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t D = (size_t)a->D;
    bool paneled = KERNEL(panel_layout_used)(a->y_packed, a->dtype, a->N, a->D);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t n = 0; n < (size_t)a->N; n++)
        if (a->dtype == F32)
            forward_row((struct row_case){.dtype = F32, .D = D}, a, io, n);
        else if (paneled)
            forward_row((struct row_case){.dtype = BF16, .paneled = true, .D = D}, a, io, n);
        else
            forward_row((struct row_case){.dtype = BF16, .D = D}, a, io, n);
    return STATUS_OK;
}

/* Sum of dy w x rstd; prefetches the next row. */
static inline float dot_dy_h(struct row_case c, const struct rmsnorm_bwd *io, size_t n, size_t at)
{
    const enum dtype dtype = c.dtype;
    const float rstd = io->rstd_N[n];
    vector even = {0}, odd = {0};
    size_t D = c.D, d = 0;
    for (; d + 2 * LANES <= D; d += 2 * LANES) {
        struct vectors x = vector_get_two(io->x_ND, at + d, dtype);
        struct vectors w = vector_get_two(io->w_D, d, dtype);
        struct vectors dy = vector_get_two(io->dy_ND, y_offset(c, n, at, d), dtype);
        vector_prefetch(io->x_ND, at + D + d, dtype);
        vector_prefetch(io->dy_ND, y_offset(c, n, at, d) + next_row(c), dtype);
        if (c.accumulate) vector_prefetch(io->dx_ND, at + D + d, dtype);
        even += dy.a * w.a * (x.a * rstd), odd += dy.b * w.b * (x.b * rstd);
    }
    for (; d < D; d += LANES) {
        size_t count = D - d < LANES ? D - d : LANES;
        vector x = vector_get(io->x_ND, at + d, dtype, count) * rstd;
        vector w = vector_get(io->w_D, d, dtype, count);
        even += vector_get(io->dy_ND, y_offset(c, n, at, d), dtype, count) * w * x;
    }
    return vector_reduce_sum(even + odd);
}

struct row_stats {
    float rstd, dot;
    enum dtype dtype;
};

/* Returns dx; adds to dw. */
static inline vector dx_of(struct row_stats stats, vector x, vector w, vector dy, vector *dw)
{
    x *= stats.rstd;
    *dw += dy * vector_round_to(stats.dtype, x);
    return stats.rstd * (dy * w - x * stats.dot);
}

/* Row n: dx, and its contribution to dw_D, which is in the element order of struct vectors. */
static inline void backward_row(struct row_case c, const struct rmsnorm *a,
                                const struct rmsnorm_bwd *io, size_t n, float *dw_D)
{
    const enum dtype dtype = c.dtype;
    size_t D = c.D, at = rmsnorm_row(a, n), d = 0;
    float dot = a->part == RMSNORM_APPLY ? io->dot_N[n] : dot_dy_h(c, io, n, at);
    struct row_stats stats = {io->rstd_N[n], dot / (float)rmsnorm_width(a), dtype};
    if (a->part == RMSNORM_SUMS) {
        io->dot_N[n] = dot;
        return;
    }
    for (; d + 2 * LANES <= D; d += 2 * LANES) {
        struct vectors x = vector_get_two(io->x_ND, at + d, dtype), old = {0};
        struct vectors w = vector_get_two(io->w_D, d, dtype);
        struct vectors dy = vector_get_two(io->dy_ND, y_offset(c, n, at, d), dtype);
        struct vectors dw = vector_get_two(dw_D, d, F32);
        if (c.accumulate) old = vector_get_two(io->dx_ND, at + d, dtype);
        x.a = dx_of(stats, x.a, w.a, dy.a, &dw.a) + old.a;
        x.b = dx_of(stats, x.b, w.b, dy.b, &dw.b) + old.b;
        vector_set_two(io->dx_ND, at + d, dtype, x);
        vector_set_two(dw_D, d, F32, dw);
    }
    for (; d < D; d += LANES) {
        size_t count = D - d < LANES ? D - d : LANES;
        vector x = vector_get(io->x_ND, at + d, dtype, count), old = {0};
        vector w = vector_get(io->w_D, d, dtype, count), dw = vector_get(dw_D, d, F32, count);
        vector dy = vector_get(io->dy_ND, y_offset(c, n, at, d), dtype, count);
        if (c.accumulate) old = vector_get(io->dx_ND, at + d, dtype, count);
        vector_set(io->dx_ND, at + d, dtype, count, dx_of(stats, x, w, dy, &dw) + old);
        vector_set(dw_D, d, F32, count, dw);
    }
}

/* What backward_rows needs of a call. */
struct rmsnorm_backward_call {
    const struct rmsnorm *op;
    const struct rmsnorm_bwd *io;
    bool paneled;
};

static inline void backward_rows(struct row_case c, const struct rmsnorm_backward_call *b,
                                 size_t begin, size_t end, float *dw_D)
{
    size_t D = (size_t)b->op->D;
    for (size_t n = begin; n < end; n++)
        if (b->op->accumulate)
            backward_row((struct row_case){c.dtype, c.paneled, true, D}, b->op, b->io, n, dw_D);
        else
            backward_row((struct row_case){c.dtype, c.paneled, false, D}, b->op, b->io, n, dw_D);
}

/* The rows of one partial sum of dw. */
static void add_rows(const void *context, size_t begin, size_t end, float *dw_D)
{
    const struct rmsnorm_backward_call *b = context;
    if (b->op->dtype == F32)
        backward_rows((struct row_case){.dtype = F32}, b, begin, end, dw_D);
    else if (b->paneled)
        backward_rows((struct row_case){.dtype = BF16, .paneled = true}, b, begin, end, dw_D);
    else
        backward_rows((struct row_case){.dtype = BF16}, b, begin, end, dw_D);
}

enum status KERNEL(rmsnorm_backward)(const struct rmsnorm *a, const struct rmsnorm_bwd *io,
                                     struct queue *queue)
{
    const struct rmsnorm_backward_call b = {
        a, io, KERNEL(panel_layout_used)(a->y_packed, a->dtype, a->N, a->D)};
    const struct column_sums sums = {(size_t)a->N, (size_t)a->D, a->dtype, add_rows, &b};
    return column_sums(&sums, a->part == RMSNORM_SUMS ? NULL : io->dw_D, queue);
}
