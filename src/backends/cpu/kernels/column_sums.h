/* column_sums.h -- the gradient of what is added to, or multiplies, every row: sums of columns.
 *
 * Order    Each thread adds a group of ROWS_PER_PART rows at a time, in order; then the groups are
 *          added in order. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

enum {
    ROWS_PER_PART = 64, /* rows of one partial sum */
    /* Columns that one thread sums: a multiple of 2 * LANES, within which vectors_index permutes */
    COLUMNS_PER_TASK = 64
};
_Static_assert(COLUMNS_PER_TASK % (2 * LANES) == 0, "whole pairs of registers");

struct column_sums {
    size_t N, D;      /* rows, columns */
    enum dtype dtype; /* of the rows */
    /* part_D += rows [begin, end); part_D is in the element order of struct vectors. */
    void (*add_rows)(const void *context, size_t begin, size_t end, float *part_D);
    const void *context;
};

/* sum_D += the sums of all rows; NULL: the rows are only visited. */
static inline enum status column_sums(const struct column_sums *a, float *sum_D,
                                      struct queue *queue)
{
    size_t D = a->D, groups = (a->N + ROWS_PER_PART - 1) / ROWS_PER_PART;
    size_t mark = arena_mark(&queue->scratch);
    float *parts = arena_alloc(&queue->scratch, groups * D, sizeof *parts);
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t group = 0; group < groups; group++) {
        size_t begin = group * ROWS_PER_PART, left = a->N - begin;
        float *part = parts + group * D;
        memset(part, 0, D * sizeof *part);
        a->add_rows(a->context, begin, begin + (left < ROWS_PER_PART ? left : ROWS_PER_PART), part);
    }
    if (!sum_D) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t begin = 0; begin < D; begin += COLUMNS_PER_TASK) {
        size_t end = D - begin < COLUMNS_PER_TASK ? D : begin + COLUMNS_PER_TASK;
        for (size_t group = 1; group < groups; group++)
            for (size_t d = begin; d < end; d++) parts[d] += parts[group * D + d];
        for (size_t d = begin; d < end; d++) sum_D[d] += parts[vectors_index(a->dtype, d, D)];
    }
    return STATUS_OK;
}
