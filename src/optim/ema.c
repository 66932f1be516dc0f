// SPDX-License-Identifier: Apache-2.0
#include "optim/ema.h"

#include "ops/update.h"

bool ema_is_kept(const struct optimizer_config *c) { return c->ema_decay > 0; }

enum status ema_step(const struct optim *o, const struct ops *ops, struct queue *queue)
{
    const struct update_ema a = {o->shard->elements, o->config->ema_decay, o->split};
    const struct update_ema_io io = {o->weights, o->split ? o->copy : NULL, o->low, o->ema};
    if (!ema_is_kept(o->config)) return STATUS_OK;
    return update_ema(ops, &a, &io, queue);
}

enum status ema_start(const struct optim *o, const struct ops *ops, struct queue *queue)
{
    const struct unsplit join = {o->shard->elements};
    const struct cast copy = {.n = o->shard->elements};
    if (!ema_is_kept(o->config)) return STATUS_OK;
    if (o->split) TRY(unsplit(ops, &join, &(struct unsplit_io){o->copy, o->low, o->ema}, queue));
    if (!o->split) TRY(cast(ops, &copy, &(struct cast_io){o->weights, o->ema}, queue));
    return STATUS_OK;
}
