// SPDX-License-Identifier: Apache-2.0
#include "ops/context.h"

int context_runs(const struct context *c, int T, struct token_run runs[MOST_RUNS])
{
    int half = T / 2;
    if (c->parts <= 1 || !c->zigzag) {
        runs[0] = (struct token_run){0, c->part * T, T};
        return 1;
    }
    runs[0] = (struct token_run){0, c->part * half, half};
    runs[1] = (struct token_run){half, (2 * c->parts - 1 - c->part) * half, half};
    return 2;
}

int context_before(const struct context *c, int T, int position)
{
    struct token_run runs[MOST_RUNS];
    int num_runs = context_runs(c, T, runs), before = 0;
    for (int i = 0; i < num_runs; i++) {
        int count = position - runs[i].first;
        before += count < 0 ? 0 : count < runs[i].count ? count : runs[i].count;
    }
    return before;
}
