// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/context.h"
}

enum { BLOCK = 256 };

/* Runs of the queries' part and of the keys'; one that is not there has no tokens. */
struct parts {
    struct token_run here[MOST_RUNS], there[MOST_RUNS];
};

__device__ static int before(const struct token_run runs[MOST_RUNS], int position)
{
    int sum = 0;
    for (int i = 0; i < MOST_RUNS; i++) sum += max(0, min(position - runs[i].first, runs[i].count));
    return sum;
}

__global__ static void context_bounds_kernel(struct parts of, int T, size_t N, int length,
                                             bool causal, const int32_t *start, const int32_t *end,
                                             int32_t *begin, int32_t *close)
{
    size_t at = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (at >= N) return;
    int t = (int)(at % (size_t)T), run = t >= of.here[0].count;
    int last = end ? end[at] : length, own = of.here[run].first + t - of.here[run].at + 1;
    begin[at] = start ? before(of.there, start[at]) : 0;
    close[at] = before(of.there, causal && own < last ? own : last);
}

extern "C" enum status GPU_NAME(context_bounds)(const struct context_bounds *a,
                                                const struct context_bounds_io *io,
                                                struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    struct parts of = {};
    size_t N = (size_t)a->B * (size_t)a->T;
    int length = a->T * (a->here.parts ? a->here.parts : 1);
    context_runs(&a->here, a->T, of.here);
    context_runs(&a->there, a->T, of.there);
    LAUNCH(context_bounds_kernel, (unsigned)ceil_div(N, BLOCK), BLOCK, 0, on, of, a->T, N, length,
           a->causal, io->start_BT, io->end_BT, io->begin_BT, io->close_BT);
    return STATUS_OK;
}
