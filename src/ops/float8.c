// SPDX-License-Identifier: Apache-2.0
#include "ops/float8.h"

enum status amax(const struct ops *ops, const struct amax *a, const struct amax_io *io,
                 struct queue *queue)
{
    if (!a->n) FAIL(SHAPE, "amax: no elements");
    OP_RUN(amax);
}

enum status float8_result_amax(const struct ops *ops, const struct amax *a,
                               const struct amax_io *io, struct queue *queue)
{
    if (!io->amax || ops->computes_amax) return STATUS_OK;
    return amax(ops, a, io, queue);
}

enum status find_scale(const struct ops *ops, const struct find_scale *a,
                       const struct find_scale_io *io, struct queue *queue)
{
    OP_RUN(find_scale);
}

enum status quantize(const struct ops *ops, const struct quantize *a, const struct quantize_io *io,
                     struct queue *queue)
{
    OP_RUN(quantize);
}
