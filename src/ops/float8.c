// SPDX-License-Identifier: Apache-2.0
#include "ops/float8.h"

enum status amax(const struct ops *ops, const struct amax *a, const struct amax_io *io,
                 struct queue *queue)
{
    if (!a->n) FAIL(SHAPE, "amax: no elements");
    OP_RUN(amax);
}

enum status largest_of_result(const struct ops *ops, size_t n, enum dtype dtype, const void *x_n,
                              float *largest, struct queue *queue)
{
    if (!largest || ops->finds_largest) return STATUS_OK;
    return amax(ops, &(struct amax){n, dtype}, &(struct amax_io){x_n, largest}, queue);
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
