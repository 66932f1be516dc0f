// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"

#include "ops/float8.h"

static enum status check(const struct swiglu *a)
{
    if (a->N < 1 || a->F < 1)
        FAIL(SHAPE, "swiglu: N %d, F %d: each must be at least 1", a->N, a->F);
    return STATUS_OK;
}

enum status swiglu_forward(const struct ops *ops, const struct swiglu *a,
                           const struct swiglu_fwd *io, struct queue *queue)
{
    TRY(check(a));
    OP_CALL(swiglu_forward);
    return float8_result_amax(ops, &(struct amax){(size_t)a->N * (size_t)a->F, a->dtype},
                              &(struct amax_io){io->out_NF, io->amax}, queue);
}

enum status swiglu_backward(const struct ops *ops, const struct swiglu *a,
                            const struct swiglu_bwd *io, struct queue *queue)
{
    TRY(check(a));
    OP_CALL(swiglu_backward);
    return float8_result_amax(ops, &(struct amax){2 * (size_t)a->N * (size_t)a->F, a->dtype},
                              &(struct amax_io){io->dgate_up_N2F, io->amax}, queue);
}
