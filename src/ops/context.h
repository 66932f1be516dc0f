/* context.h -- context parallelism: which tokens of a sequence a rank holds.
 *
 * Zigzag   Load-balances causal attention, where later tokens attend to more keys: a sequence is
 *          cut into 2 * parts chunks, and part p has chunks p and 2 * parts - 1 - p.  Without
 *          zigzag, part p has the p-th of `parts` chunks.
 * Axes     A rank holds T tokens of each sequence of T * parts tokens, in sequence order.  A
 *          position is a token's index in the whole sequence.
 * Sources  Llama Team 2024 (The Llama 3 Herd of Models), section 3.3.2 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"

#include <stdbool.h>
#include <stdint.h>

struct context {
    int parts, part; /* 1, 0 or 0, 0: whole sequences */
    bool zigzag;     /* requires an even T */
};

/* `count` local tokens from index `at` on have positions from `first` on. */
struct token_run {
    int at, first, count;
};

enum { MAX_TOKEN_RUNS = 2 };
/* The runs of a part's T tokens in ascending order; returns their number. */
int context_runs(const struct context *c, int T, struct token_run runs[MAX_TOKEN_RUNS]);
/* How many of a part's T tokens are before that position. */
int context_tokens_before(const struct context *c, int T, int position);

/* Which of the T keys of one part each of the T queries of another attends to.  Keys are in
 * sequence order, so these are contiguous. */
struct context_bounds {
    int B, T;
    struct context queries, keys; /* part of the queries, and of the keys; otherwise equal */
    bool causal;
    int window; /* causal: as in struct attention */
};
struct context_bounds_io {
    const int32_t *start_BT, *end_BT;   /* document mask as positions; both NULL: none */
    int32_t *key_begin_BT, *key_end_BT; /* a query attends to local keys [begin, end); replaced */
};
/* SHAPE: no tokens, a part out of range, unequal partitions, or zigzag with an odd T. */
enum status context_bounds(const struct ops *, const struct context_bounds *,
                           const struct context_bounds_io *, struct queue *);
