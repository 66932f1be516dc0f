/* bias.c (cpu) -- one pass over the rows. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/bias.h"
#include "backends/cpu/kernels/column_sums.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

/* y += b in one row; with a constant dtype the compiler specializes the loop. */
static inline void forward_row(enum dtype dtype, const struct bias_fwd *io, size_t at, size_t F)
{
    size_t f = 0;
    for (; f + 2 * LANES <= F; f += 2 * LANES) {
        struct vectors y = vector_get_two(io->y_NF, at + f, dtype);
        struct vectors b = vector_get_two(io->b_F, f, dtype);
        y.a += b.a, y.b += b.b;
        vector_set_two(io->y_NF, at + f, dtype, y);
    }
    for (; f < F; f += LANES) {
        size_t count = F - f < LANES ? F - f : LANES;
        vector b = vector_get(io->b_F, f, dtype, count);
        vector_set(io->y_NF, at + f, dtype, count, vector_get(io->y_NF, at + f, dtype, count) + b);
    }
}

enum status KERNEL(bias_forward)(const struct bias *a, const struct bias_fwd *io,
                                 struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t N = (size_t)a->N, F = (size_t)a->F;
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t n = 0; n < N; n++)
        if (a->dtype == F32)
            forward_row(F32, io, n * F, F);
        else
            forward_row(BF16, io, n * F, F);
    return STATUS_OK;
}

/* part_F += one row of dy; part is in the element order of struct vectors. */
static inline void add_row(enum dtype dtype, const void *dy_NF, size_t at, size_t F, float *part_F)
{
    size_t f = 0;
    for (; f + 2 * LANES <= F; f += 2 * LANES) {
        struct vectors dy = vector_get_two(dy_NF, at + f, dtype);
        struct vectors sum = vector_get_two(part_F, f, F32);
        sum.a += dy.a, sum.b += dy.b;
        vector_set_two(part_F, f, F32, sum);
    }
    for (; f < F; f += LANES) {
        size_t count = F - f < LANES ? F - f : LANES;
        vector sum = vector_get(part_F, f, F32, count);
        vector_set(part_F, f, F32, count, sum + vector_get(dy_NF, at + f, dtype, count));
    }
}

struct bias_backward_call {
    const struct bias *op;
    const struct bias_bwd *io;
};

static void add_rows(const void *context, size_t begin, size_t end, float *part_F)
{
    const struct bias_backward_call *b = context;
    size_t F = (size_t)b->op->F;
    for (size_t n = begin; n < end; n++)
        if (b->op->dtype == F32)
            add_row(F32, b->io->dy_NF, n * F, F, part_F);
        else
            add_row(BF16, b->io->dy_NF, n * F, F, part_F);
}

enum status KERNEL(bias_backward)(const struct bias *a, const struct bias_bwd *io,
                                  struct queue *queue)
{
    const struct bias_backward_call b = {a, io};
    const struct column_sums sums = {(size_t)a->N, (size_t)a->F, a->dtype, add_rows, &b};
    return column_sums(&sums, io->db_F, queue);
}
