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

enum status residual_copy(const struct model *m, size_t N, const void *x_SD, void *y_SD,
                          bool accumulate)
{
    struct cast op = {.n = residual_rows(m, N) * (size_t)m->shape.D,
                      .from = m->dtype,
                      .to = m->dtype,
                      .accumulate = accumulate};
    TRY(cast(m->ops, &op, &(struct cast_io){x_SD, y_SD}, m->queue));
    return STATUS_OK;
}

void *residual_alloc_gathered(const struct model *m, size_t N, struct arena *step)
{
    if (m->plan->parts == 1) return NULL;
    return arena_alloc(step, N * (size_t)m->shape.D, dtype_bytes(m->dtype));
}

enum status residual_cross(const struct model *m, enum boundary at, enum direction direction,
                           void *x_ND, size_t N)
{
    struct crossing c = {x_ND, (int)N, m->shape.D, m->dtype};
    TRY(m->plan->cross(m->plan, at, direction, &c, m->queue));
    return STATUS_OK;
}
