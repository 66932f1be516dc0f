// SPDX-License-Identifier: Apache-2.0
#include "ops/context.h"
#include "backends/cpu/kernels/kernels.h"
#include "tensor/queue.h"

/* context_tokens_before for precomputed runs; an absent run has 0 tokens. */
static inline int tokens_before(const struct token_run runs[MAX_TOKEN_RUNS], int position)
{
    int sum = 0;
    for (int i = 0; i < MAX_TOKEN_RUNS; i++) {
        int count = position - runs[i].first;
        count = count < runs[i].count ? count : runs[i].count;
        sum += count > 0 ? count : 0;
    }
    return sum;
}

enum status KERNEL(context_bounds)(const struct context_bounds *a,
                                   const struct context_bounds_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    struct token_run here[MAX_TOKEN_RUNS] = {0}, there[MAX_TOKEN_RUNS] = {0};
    int length = a->T * (a->queries.parts ? a->queries.parts : 1), T = a->T;
    context_runs(&a->queries, T, here);
    context_runs(&a->keys, T, there);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (int b = 0; b < a->B; b++) {
        size_t row = (size_t)b * (size_t)T;
        const int32_t *start = io->start_BT ? io->start_BT + row : NULL;
        const int32_t *end = io->end_BT ? io->end_BT + row : NULL;
        for (int t = 0; t < T; t++) {
            int causal_end =
                (t < here[0].count ? here[0].first : here[1].first - here[1].at) + t + 1;
            int visible_end = end ? end[t] : length;
            if (a->causal && visible_end > causal_end) visible_end = causal_end;
            int visible_begin = start ? start[t] : 0;
            if (a->window && visible_begin < causal_end - a->window)
                visible_begin = causal_end - a->window;
            io->key_begin_BT[row + (size_t)t] = tokens_before(there, visible_begin);
            io->key_end_BT[row + (size_t)t] = tokens_before(there, visible_end);
        }
    }
    return STATUS_OK;
}
