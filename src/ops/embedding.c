// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

static enum status check(const struct embedding *a)
{
    if (a->N < 1 || a->V < 1 || a->D < 1)
        FAIL(SHAPE, "embedding: N %d, V %d, D %d: each must be at least 1", a->N, a->V, a->D);
    return STATUS_OK;
}

enum status embedding_forward(const struct ops *ops, const struct embedding *a,
                              const struct embedding_fwd *io, struct queue *queue)
{
    TRY(check(a));
    OP_RUN(embedding_forward);
}

enum status embedding_backward(const struct ops *ops, const struct embedding *a,
                               const struct embedding_bwd *io, struct queue *queue)
{
    TRY(check(a));
    OP_RUN(embedding_backward);
}
