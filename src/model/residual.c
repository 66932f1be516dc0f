// SPDX-License-Identifier: Apache-2.0
#include "model/residual.h"

#include "ops/update.h"
#include "tensor/element.h"

size_t residual_rows(const struct model *m, size_t N)
{
    return m->plan->sequence_parallel ? N / (size_t)m->plan->parts : N;
}

void *residual_local(const struct model *m, void *gathered_ND, size_t N)
{
    size_t part = m->plan->sequence_parallel ? (size_t)m->plan->part : 0;
    return element(gathered_ND, part * residual_rows(m, N) * (size_t)m->shape.D, m->dtype);
}

static enum status scale_stream(const struct model *m, struct cast op, const void *x_SD, void *y_SD)
{
    op.from = op.to = m->dtype;
    TRY(cast(m->ops, &op, &(struct cast_io){x_SD, y_SD}, m->queue));
    return STATUS_OK;
}

enum status residual_copy(const struct model *m, size_t N, const void *x_SD, void *y_SD,
                          double scale)
{
    struct cast op = {.n = residual_rows(m, N) * (size_t)m->shape.D, .scale = (float)scale};
    return scale_stream(m, op, x_SD, y_SD);
}

enum status residual_add(const struct model *m, size_t N, const void *x_SD, void *y_SD,
                         double scale)
{
    struct cast op = {
        .n = residual_rows(m, N) * (size_t)m->shape.D, .accumulate = true, .scale = (float)scale};
    return scale_stream(m, op, x_SD, y_SD);
}

bool residual_is_apart(const struct model *m)
{
    return m->plan->parts > 1 || m->shape.residual_multiplier > 0 || m->shape.post_norm;
}

void *residual_alloc_gathered(const struct model *m, size_t N, struct arena *step)
{
    if (!residual_is_apart(m)) return NULL;
    return arena_alloc(step, N * (size_t)m->shape.D, dtype_bytes(m->dtype));
}

enum status residual_cross(const struct model *m, enum boundary at, enum direction direction,
                           void *x_ND, size_t N)
{
    struct crossing c = {.x = x_ND, .rows = (int)N, .columns = m->shape.D, .dtype = m->dtype};
    TRY(m->plan->cross(m->plan, at, direction, &c, m->queue));
    return STATUS_OK;
}
