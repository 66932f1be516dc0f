// SPDX-License-Identifier: Apache-2.0
#include "ops/context.h"

int context_runs(const struct context *c, int T, struct token_run runs[MAX_TOKEN_RUNS])
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

int context_tokens_before(const struct context *c, int T, int position)
{
    struct token_run runs[MAX_TOKEN_RUNS];
    int num_runs = context_runs(c, T, runs), before = 0;
    for (int i = 0; i < num_runs; i++) {
        int count = position - runs[i].first;
        before += count < 0 ? 0 : count < runs[i].count ? count : runs[i].count;
    }
    return before;
}

static bool is_valid_part(const struct context *c, const struct context_bounds *a)
{
    return c->parts >= 0 && c->part >= 0 && c->part < (c->parts ? c->parts : 1) &&
           !(c->zigzag && c->parts > 1 && a->T % 2);
}

enum status context_bounds(const struct ops *ops, const struct context_bounds *a,
                           const struct context_bounds_io *io, struct queue *queue)
{
    int length;
    if (a->B < 1 || a->T < 1 || __builtin_mul_overflow(a->T, a->queries.parts, &length))
        FAIL(SHAPE, "context_bounds: %d rows of %d tokens in %d parts: sizes out of range", a->B,
             a->T, a->queries.parts);
    if (!is_valid_part(&a->queries, a) || !is_valid_part(&a->keys, a) ||
        a->queries.parts != a->keys.parts || a->queries.zigzag != a->keys.zigzag)
        FAIL(SHAPE,
             "context_bounds: queries of part %d of %d and keys of part %d of %d with T %d: parts "
             "must match, and zigzag needs an even T",
             a->queries.part, a->queries.parts, a->keys.part, a->keys.parts, a->T);
    OP_RUN(context_bounds);
}
