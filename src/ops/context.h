/* context.h -- which tokens of a row are here, where rows are cut over several ranks.
 *
 * Zigzag   For causal attention, where later tokens see more: a row is cut into 2 * parts chunks,
 *          and part p has chunks p and 2 * parts - 1 - p, so all parts have the same to compute.
 *          Otherwise part p has the p-th of `parts` chunks.
 * Axes     T tokens of a row are here, T * parts are the row; those that are here lie in the order
 *          they have in it.  A position is a token's place in the row.
 * Sources  Llama Team 2024 (The Llama 3 Herd of Models), section 3.3.2 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"

#include <stdbool.h>
#include <stdint.h>

struct context {
    int parts, part; /* 0, 0 as 1, 0: whole rows are here */
    bool zigzag;     /* then 2 divides T */
};

/* Tokens at, at + 1, ... of those here stand at positions first, first + 1, ... */
struct token_run {
    int at, first, count;
};

enum { MOST_RUNS = 2 };
/* The runs of the T tokens in ascending order; returns how many there are. */
int context_runs(const struct context *c, int T, struct token_run runs[MOST_RUNS]);
/* How many of the T tokens stand before that position. */
int context_before(const struct context *c, int T, int position);

/* Which of the T keys of one part the T queries of another see: as keys lie in order, those are
 * neighbours. */
struct context_bounds {
    int B, T;
    struct context here, there; /* the queries' part, and the keys': as many parts, cut alike */
    bool causal;
};
struct context_bounds_io {
    const int32_t *start_BT, *end_BT; /* a query sees these positions, or all where NULL */
    int32_t *begin_BT, *close_BT;     /* it sees the keys begin to close - 1; replaced */
};
/* SHAPE: no tokens, parts that there are not, or a zigzag of an odd T. */
enum status context_bounds(const struct ops *, const struct context_bounds *,
                           const struct context_bounds_io *, struct queue *);
