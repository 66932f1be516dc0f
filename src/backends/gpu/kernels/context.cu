/* context.cu -- a thread per query. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/context.h"
}

enum { BLOCK = 256 };

/* Token runs of the queries' and of the keys' ring part; unused runs have no tokens. */
struct ring_parts {
    struct token_run queries[MAX_TOKEN_RUNS], keys[MAX_TOKEN_RUNS];
};

/* How many tokens of the part precede the position. */
__device__ static int tokens_before(const struct token_run runs[MAX_TOKEN_RUNS], int position)
{
    int sum = 0;
    for (int i = 0; i < MAX_TOKEN_RUNS; i++)
        sum += max(0, min(position - runs[i].first, runs[i].count));
    return sum;
}

__global__ static void context_bounds_kernel(struct ring_parts parts, int T, size_t N, int length,
                                             bool causal, int window, const int32_t *start,
                                             const int32_t *end, int32_t *begin, int32_t *close)
{
    size_t at = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (at >= N) return;
    int t = (int)(at % (size_t)T), run = t >= parts.queries[0].count;
    int last = end ? end[at] : length;
    int causal_end = parts.queries[run].first + t - parts.queries[run].at + 1;
    int first = start ? start[at] : 0;
    if (window) first = max(first, causal_end - window);
    begin[at] = tokens_before(parts.keys, first);
    close[at] = tokens_before(parts.keys, causal && causal_end < last ? causal_end : last);
}

extern "C" enum status GPU_NAME(context_bounds)(const struct context_bounds *a,
                                                const struct context_bounds_io *io,
                                                struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    struct ring_parts parts = {};
    size_t N = (size_t)a->B * (size_t)a->T;
    int length = a->T * (a->queries.parts ? a->queries.parts : 1);
    context_runs(&a->queries, a->T, parts.queries);
    context_runs(&a->keys, a->T, parts.keys);
    LAUNCH(context_bounds_kernel, (unsigned)ceil_div(N, BLOCK), BLOCK, 0, queue, parts, a->T, N,
           length, a->causal, a->window, io->start_BT, io->end_BT, io->key_begin_BT,
           io->key_end_BT);
    return STATUS_OK;
}
