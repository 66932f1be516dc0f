// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

static enum status check(const struct linear *a)
{
    if (a->N < 1 || a->D < 1 || a->F < 1)
        FAIL(SHAPE, "linear: N %d, D %d, F %d: each must be at least 1", a->N, a->D, a->F);
    return STATUS_OK;
}

enum status linear_forward(const struct ops *ops, const struct linear *a,
                           const struct linear_fwd *io, struct queue *queue)
{
    TRY(check(a));
    OP_RUN(linear_forward);
}

enum status linear_backward_input(const struct ops *ops, const struct linear *a,
                                  const struct linear_bwd_input *io, struct queue *queue)
{
    TRY(check(a));
    OP_RUN(linear_backward_input);
}

enum status linear_backward_weight(const struct ops *ops, const struct linear *a,
                                   const struct linear_bwd_weight *io, struct queue *queue)
{
    TRY(check(a));
    OP_RUN(linear_backward_weight);
}
