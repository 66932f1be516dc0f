// SPDX-License-Identifier: Apache-2.0
#include "ops/update.h"

#include "tensor/element.h"

#include <math.h>

enum status sum_squares(const struct ops *ops, const struct sum_squares *a,
                        const struct sum_squares_io *io, struct queue *queue)
{
    OP_RUN(sum_squares);
}

struct adamw_coefficients adamw_coefficients_of(const struct adamw *a)
{
    double correction1 = 1 - pow(a->beta1, (double)a->step);
    double correction2 = 1 - pow(a->beta2, (double)a->step);
    return (struct adamw_coefficients){.keep = (float)(1 - a->lr * a->weight_decay),
                                       .rate = (float)(a->lr / correction1),
                                       .root = (float)(1 / sqrt(correction2)),
                                       .eps = (float)a->eps,
                                       .scale = (float)a->scale,
                                       .beta1 = (float)a->beta1,
                                       .beta2 = (float)a->beta2,
                                       .new1 = (float)(1 - a->beta1),
                                       .new2 = (float)(1 - a->beta2)};
}

/* A call for each part, for backends that take one at a time. */
static enum status adamw_by_part(const struct ops *ops, const struct adamw *all,
                                 const struct adamw_io *io, struct queue *queue)
{
    for (const struct adamw_part *p = all->parts; p < all->parts + all->num_parts; p++) {
        struct adamw a = *all;
        a.n = p->count, a.lr = p->lr, a.weight_decay = p->weight_decay;
        a.position = p->position, a.run = p->run, a.stride = p->stride;
        a.parts = NULL, a.num_parts = 0;
        struct adamw_io part = {.w_n = io->w_n ? io->w_n + p->begin : NULL,
                                .m_n = element(io->m_n, p->begin, a.moments),
                                .v_n = element(io->v_n, p->begin, a.moments),
                                .g_n = element(io->g_n, p->begin, a.gradients),
                                .copy_n = element(io->copy_n, p->begin, a.copy_dtype),
                                .low_n = io->low_n ? io->low_n + p->begin : NULL};
        TRY(adamw(ops, &a, &part, queue));
    }
    return STATUS_OK;
}

enum status adamw(const struct ops *ops, const struct adamw *a, const struct adamw_io *io,
                  struct queue *queue)
{
    if (a->step < 1) FAIL(SHAPE, "adamw: step %lld: must be at least 1", (long long)a->step);
    if (a->split && a->copy_dtype != BF16)
        FAIL(SHAPE, "adamw: split weights need a copy in bfloat16, not %s",
             dtype_name(a->copy_dtype));
    if (a->num_parts > ADAMW_MAX_PARTS)
        FAIL(SHAPE, "adamw: %d parts: at most %d per call", a->num_parts, ADAMW_MAX_PARTS);
    if (a->num_parts && !ops->is_multi_tensor) return adamw_by_part(ops, a, io, queue);
    OP_RUN(adamw);
}

enum status axpby(const struct ops *ops, const struct axpby *a, const struct axpby_io *io,
                  struct queue *queue)
{
    OP_RUN(axpby);
}

enum status divide_by_norm(const struct ops *ops, const struct divide_by_norm *a,
                           const struct divide_by_norm_io *io, struct queue *queue)
{
    OP_RUN(divide_by_norm);
}

enum status matrix_polynomial(const struct ops *ops, const struct matrix_polynomial *a,
                              const struct matrix_polynomial_io *io, struct queue *queue)
{
    OP_RUN(matrix_polynomial);
}

enum status apply_update(const struct ops *ops, const struct apply_update *a,
                         const struct apply_update_io *io, struct queue *queue)
{
    if (a->split && a->copy_dtype != BF16)
        FAIL(SHAPE, "apply_update: split weights need a copy in bfloat16, not %s",
             dtype_name(a->copy_dtype));
    OP_RUN(apply_update);
}

enum status update_ema(const struct ops *ops, const struct update_ema *a,
                       const struct update_ema_io *io, struct queue *queue)
{
    OP_RUN(update_ema);
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
