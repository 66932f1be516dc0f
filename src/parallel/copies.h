/* copies.h -- weights that several ranks of a tensor-parallel group hold whole, each for its own
 * tokens or heads: their gradients are sums over those ranks, and count once in a norm.
 *
 * Norms' weights are on every rank of the group; where the group has more ranks than the model has
 * heads of keys and values, so is each such head on several neighbours. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "comm/comm.h"
#include "model/params.h"
#include "ops/ops.h"
#include "tensor/queue.h"

struct copies {
    const struct comm *group;    /* who has them; borrowed */
    char axis;                   /* of llama.params: 'P' keys and values, 0 what is never cut */
    const struct layout *layout; /* borrowed */
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
/* Squares of those that another rank of the group counts already; 0 on its first. */
enum status copies_squares(const struct copies *c, double *squares);
