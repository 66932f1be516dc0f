// SPDX-License-Identifier: Apache-2.0
#include "ops/update.h"

enum status sum_squares(const struct ops *ops, const struct sum_squares *a,
                        const struct sum_squares_io *io, struct queue *queue)
{
    OP_RUN(sum_squares);
}

static void *element_at(const void *base, size_t offset, size_t each)
{
    return base ? (char *)(uintptr_t)base + offset * each : NULL;
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
        struct adamw_io part = {.w_n = element_at(io->w_n, p->begin, sizeof *io->w_n),
                                .m_n = element_at(io->m_n, p->begin, dtype_bytes(a.moments)),
                                .v_n = element_at(io->v_n, p->begin, dtype_bytes(a.moments)),
                                .g_n = element_at(io->g_n, p->begin, dtype_bytes(a.gradients)),
                                .copy_n =
                                    element_at(io->copy_n, p->begin, dtype_bytes(a.copy_dtype)),
                                .low_n = element_at(io->low_n, p->begin, sizeof *io->low_n)};
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
