/* bias.c (cpu) -- one pass over the rows.  Backward adds groups of rows, then the groups in order.
 */
// SPDX-License-Identifier: Apache-2.0
#include "ops/bias.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

enum { ROWS_PER_PART = 64 }; /* rows of one partial sum of db */

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

enum status KERNEL(bias_backward)(const struct bias *a, const struct bias_bwd *io,
                                  struct queue *queue)
{
    size_t N = (size_t)a->N, F = (size_t)a->F, blocks = (N + ROWS_PER_PART - 1) / ROWS_PER_PART;
    size_t mark = arena_mark(&queue->scratch);
    float *parts = arena_alloc(&queue->scratch, blocks * F, sizeof *parts);
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t block = 0; block < blocks; block++) {
        size_t begin = block * ROWS_PER_PART, end = begin + ROWS_PER_PART;
        float *part = parts + block * F;
        memset(part, 0, F * sizeof *part);
        for (size_t n = begin; n < (end < N ? end : N); n++)
            if (a->dtype == F32)
                add_row(F32, io->dy_NF, n * F, F, part);
            else
                add_row(BF16, io->dy_NF, n * F, F, part);
    }
    for (size_t block = 1; block < blocks; block++)
        for (size_t f = 0; f < F; f++) parts[f] += parts[block * F + f];
    for (size_t f = 0; f < F; f++) io->db_F[f] += parts[vectors_index(a->dtype, f, F)];
    return STATUS_OK;
}
