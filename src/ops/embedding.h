/* embedding.h -- embedding lookup, and the gradient of the table.
 *
 * Axes     N tokens, V rows of the table, D width.  The table may be a shard of a larger one, with
 *          the rows of ids [first, first + V); other ids give zeros.
 * Order    Backward adds the rows of one id in token order, so its bits do not depend on
 *          threads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdint.h>

struct embedding {
    int N, V, D;
    enum dtype dtype; /* of w, y, dy */
    int first;
};
struct embedding_fwd {
    const int32_t *ids_N; /* in the whole table; checked by the caller */
    const void *w_VD;
    void *y_ND;
};
struct embedding_bwd {
    const int32_t *ids_N;
    const void *dy_ND;
    float *dw_VD; /* accumulates */
};

/* The local row of an id, or -1. */
static inline int embedding_row(const struct embedding *a, int32_t id)
{
    return id >= a->first && id - a->first < a->V ? id - a->first : -1;
}

/* y[n] = w[ids[n] - first].  SHAPE: a size below 1. */
enum status embedding_forward(const struct ops *, const struct embedding *,
                              const struct embedding_fwd *, struct queue *);
/* dw[ids[n] - first] += dy[n] */
enum status embedding_backward(const struct ops *, const struct embedding *,
                               const struct embedding_bwd *, struct queue *);
