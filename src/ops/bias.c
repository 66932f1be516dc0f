// SPDX-License-Identifier: Apache-2.0
#include "ops/bias.h"

static enum status check(const struct bias *a)
{
    if (a->N < 1 || a->F < 1) FAIL(SHAPE, "bias: N %d, F %d: each must be at least 1", a->N, a->F);
    return STATUS_OK;
}

enum status bias_forward(const struct ops *ops, const struct bias *a, const struct bias_fwd *io,
                         struct queue *queue)
{
    TRY(check(a));
    OP_RUN(bias_forward);
}

enum status bias_backward(const struct ops *ops, const struct bias *a, const struct bias_bwd *io,
                          struct queue *queue)
{
    TRY(check(a));
    OP_RUN(bias_backward);
}
