// SPDX-License-Identifier: Apache-2.0
#include "ops/rmsnorm.h"

#include "ops/float8.h"

static enum status check(const struct rmsnorm *a)
{
    if (a->N < 1 || a->D < 1)
        FAIL(SHAPE, "rmsnorm: N %d, D %d: each must be at least 1", a->N, a->D);
    if (!(a->eps >= 0)) FAIL(SHAPE, "rmsnorm: eps %g must not be negative", (double)a->eps);
    if (a->part != RMSNORM_WHOLE && (a->width < a->D || a->y_packed))
        FAIL(SHAPE,
             "rmsnorm: %d elements of rows of %d%s: expected at most the whole row, not packed",
             a->D, a->width, a->y_packed ? ", packed" : "");
    if (!a->heads) return STATUS_OK;
    if (a->heads < 0 || a->N % a->heads || a->stride / (size_t)a->heads < (size_t)a->D)
        FAIL(SHAPE,
             "rmsnorm: %d rows of %d elements as %d heads per token, %zu elements apart: expected "
             "whole tokens that do not overlap",
             a->N, a->D, a->heads, a->stride);
    if (a->y_packed) FAIL(SHAPE, "rmsnorm: rows that are heads of tokens cannot be packed");
    return STATUS_OK;
}

enum status rmsnorm_forward(const struct ops *ops, const struct rmsnorm *a,
                            const struct rmsnorm_fwd *io, struct queue *queue)
{
    TRY(check(a));
    OP_CALL(rmsnorm_forward);
    return float8_result_amax(ops, &(struct amax){(size_t)a->N * (size_t)a->D, a->dtype},
                              &(struct amax_io){io->y_ND, io->amax}, queue);
}

enum status rmsnorm_backward(const struct ops *ops, const struct rmsnorm *a,
                             const struct rmsnorm_bwd *io, struct queue *queue)
{
    TRY(check(a));
    OP_RUN(rmsnorm_backward);
}
