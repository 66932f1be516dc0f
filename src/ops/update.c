// SPDX-License-Identifier: Apache-2.0
#include "ops/update.h"

enum status sum_squares(const struct ops *ops, const struct sum_squares *a,
                        const struct sum_squares_io *io, struct queue *queue)
{
    OP_RUN(sum_squares);
}

enum status adamw(const struct ops *ops, const struct adamw *a, const struct adamw_io *io,
                  struct queue *queue)
{
    if (a->step < 1) FAIL(SHAPE, "adamw: step %lld: must be at least 1", (long long)a->step);
    if (a->split && a->copy_dtype != BF16)
        FAIL(SHAPE, "adamw: split weights need a copy in bfloat16, not %s",
             dtype_name(a->copy_dtype));
    OP_RUN(adamw);
}

enum status axpby(const struct ops *ops, const struct axpby *a, const struct axpby_io *io,
                  struct queue *queue)
{
    OP_RUN(axpby);
}

enum status apply_update(const struct ops *ops, const struct apply_update *a,
                         const struct apply_update_io *io, struct queue *queue)
{
    if (a->split && a->copy_dtype != BF16)
        FAIL(SHAPE, "apply_update: split weights need a copy in bfloat16, not %s",
             dtype_name(a->copy_dtype));
    OP_RUN(apply_update);
}

enum status cast(const struct ops *ops, const struct cast *a, const struct cast_io *io,
                 struct queue *queue)
{
    if (a->rows > 1 && (a->from_stride < a->n || a->to_stride < a->n))
        FAIL(SHAPE, "cast: strides %zu and %zu are shorter than rows of %zu", a->from_stride,
             a->to_stride, a->n);
    OP_RUN(cast);
}

enum status unsplit(const struct ops *ops, const struct unsplit *a, const struct unsplit_io *io,
                    struct queue *queue)
{
    OP_RUN(unsplit);
}
