/* embedding.h -- rows of a table by number, and the gradient of the table.
 *
 * Axes     N tokens, V rows of the table, D width.  The table may be a part of a larger one: its
 *          rows have the numbers first to first + V - 1, and other ids give zeros.
 * Order    Backward adds the rows of one id in token order, so its bits do not depend on threads.
 */
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
    const int32_t *ids_N; /* of the whole table: the caller has checked */
    const void *w_VD;
    void *y_ND;
};
struct embedding_bwd {
    const int32_t *ids_N;
    const void *dy_ND;
    float *dw_VD; /* added to */
};

/* The row of an id here, or -1. */
static inline int embedding_row(const struct embedding *a, int32_t id)
{
    return id >= a->first && id - a->first < a->V ? id - a->first : -1;
}

enum status embedding_forward(const struct ops *, const struct embedding *,
                              const struct embedding_fwd *, struct queue *);
/* dw[ids[n] - first] += dy[n] */
enum status embedding_backward(const struct ops *, const struct embedding *,
                               const struct embedding_bwd *, struct queue *);
