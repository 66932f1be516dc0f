// SPDX-License-Identifier: Apache-2.0
#include "ops/context.h"
#include "backends/cpu/cpu.h"

enum status reference_context_bounds(const struct context_bounds *a,
                                     const struct context_bounds_io *io, struct queue *queue)
{
    struct token_run runs[MAX_TOKEN_RUNS];
    int num_runs = context_runs(&a->queries, a->T, runs);
    int length = a->T * (a->queries.parts ? a->queries.parts : 1);
    if (queue->sizing) return STATUS_OK;
    for (int b = 0; b < a->B; b++)
        for (int i = 0; i < num_runs; i++)
            for (int k = 0; k < runs[i].count; k++) {
                size_t at = (size_t)b * (size_t)a->T + (size_t)(runs[i].at + k);
                int start = io->start_BT ? io->start_BT[at] : 0;
                int end = io->end_BT ? io->end_BT[at] : length;
                int own = runs[i].first + k + 1;
                if (a->causal && end > own) end = own;
                if (a->window && start < own - a->window) start = own - a->window;
                io->key_begin_BT[at] = context_tokens_before(&a->keys, a->T, start);
                io->key_end_BT[at] = context_tokens_before(&a->keys, a->T, end);
            }
    return STATUS_OK;
}
