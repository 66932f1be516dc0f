/* copies.h -- weights that several ranks of a group hold alike, each for tokens, heads or uses of
 * its own: their gradients are sums over those ranks, and count once in a norm.
 *
 * Norms' weights are on every tensor-parallel rank; where there are more of these than heads of
 * keys and values, so is each such head on several neighbours; and the embedding that is the head
 * too is on the first and the last stage of a pipeline. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "comm/comm.h"
#include "model/params.h"
#include "ops/ops.h"
#include "tensor/queue.h"

enum copied { COPIED_WHOLE, COPIED_HEADS, COPIED_EMBEDDING, COPIED_COUNT };

struct copies {
    const struct comm *group; /* who has them; borrowed */
    enum copied what;
    const struct layout *layout; /* of the whole model; borrowed */
    const struct pieces *pieces; /* borrowed */
    const struct ops *ops;       /* borrowed */
    struct queue *on;            /* borrowed */
    size_t count;                /* elements here; copies_take */
    float *sums;                 /* copies_take */
    void *work;                  /* copies_take */
};

/* Fields above `count` are set.  In a group of one there is nothing to sum. */
void copies_take(struct copies *c, struct arena *run);
/* The flat gradients' copied elements become the group's sums. */
enum status copies_sum(struct copies *c, float *gradients);
/* Squares of those elements of a flat buffer that another rank of the group counts already; 0 on
 * its first. */
enum status copies_squares(const struct copies *c, float *flat, double *squares);
