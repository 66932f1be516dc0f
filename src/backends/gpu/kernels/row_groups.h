/* row_groups.h (gpu) -- sums over rows in two steps: each block adds up one group of rows, then
 * add_row_groups_kernel adds the groups in order.  The grouping depends on the number of rows only.
 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/kernels/kernel.h"

enum { MAX_ROW_GROUPS = 512 }; /* enough for all multiprocessors of current devices */

struct row_groups {
    int rows, groups; /* rows per group */
    float *partial_GD;
};

/* The groups of N rows of D columns; partial_GD is reserved and released: scratch memory. */
static inline struct row_groups row_groups_of(size_t N, size_t D, struct queue *queue)
{
    int rows = (int)ceil_div(N, MAX_ROW_GROUPS);
    struct row_groups g = {rows, (int)ceil_div(N, (size_t)rows), NULL};
    size_t mark = arena_mark(&queue->scratch);
    g.partial_GD = (float *)arena_alloc(&queue->scratch, (size_t)g.groups * D, sizeof(float));
    arena_reset(&queue->scratch, mark);
    return g;
}

/* sum_D += the sum over groups.  A block takes GROUP_COLUMNS columns; GROUP_SLICES threads split
 * the groups of each. */
enum { GROUP_COLUMNS = 32, GROUP_SLICES = 16, GROUP_THREADS = GROUP_COLUMNS * GROUP_SLICES };
static __global__ void __launch_bounds__(GROUP_THREADS)
    add_row_groups_kernel(int D, int groups, const float *partial_GD, float *sum_D)
{
    __shared__ float sums[GROUP_SLICES][GROUP_COLUMNS];
    int column = (int)threadIdx.x % GROUP_COLUMNS, slice = (int)threadIdx.x / GROUP_COLUMNS;
    int d = (int)blockIdx.x * GROUP_COLUMNS + column;
    int per_slice = (groups + GROUP_SLICES - 1) / GROUP_SLICES;
    float sum = 0;
    if (d < D)
        for (int g = slice * per_slice; g < min((slice + 1) * per_slice, groups); g++)
            sum += partial_GD[(size_t)g * D + d];
    sums[slice][column] = sum;
    __syncthreads();
    if (slice || d >= D) return;
    for (int i = 1; i < GROUP_SLICES; i++) sum += sums[i][column];
    sum_D[d] += sum;
}

static inline enum status add_row_groups(const struct row_groups *g, int D, float *sum_D,
                                         struct queue *queue)
{
    LAUNCH(add_row_groups_kernel, (unsigned)ceil_div((size_t)D, GROUP_COLUMNS), GROUP_THREADS, 0,
           queue, D, g->groups, (const float *)g->partial_GD, sum_D);
    return STATUS_OK;
}
