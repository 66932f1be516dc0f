// SPDX-License-Identifier: Apache-2.0
#include "parallel/copies.h"

#include "model/block.h"
#include "ops/update.h"

static bool is_copied(const struct copies *c, const struct piece *p)
{
    enum param_id id = c->layout->tensors[p->tensor].id;
    switch (c->what) {
    case COPIED_WHOLE: return !params[id].tp;
    case COPIED_HEADS: return params[id].tp == 'P';
    case COPIED_EMBEDDING: return id == PARAM_embed;
    case COPIED_COUNT: break;
    }
    BUG("nothing is copied");
}

void copies_take(struct copies *c, struct arena *run)
{
    c->count = 0;
    if (c->group->size == 1) return;
    for (size_t i = 0; i < c->pieces->count; i++)
        if (is_copied(c, &c->pieces->all[i])) c->count += c->pieces->all[i].count;
    size_t work = transfer_work_bytes(TRANSFER_all_reduce, F32, c->count, c->group->size);
    c->sums = arena_take(run, c->count, sizeof *c->sums);
    c->work = arena_take(run, work, 1);
}

/* From their places to c->sums, or back. */
static enum status move(const struct copies *c, float *flat, bool back)
{
    size_t at = 0;
    for (size_t i = 0; i < c->pieces->count; i++) {
        const struct piece *p = &c->pieces->all[i];
        if (!is_copied(c, p)) continue;
        struct cast what = {.n = p->count};
        void *there = element(flat, p->at, F32), *here = element(c->sums, at, F32);
        struct cast_io io = {back ? here : there, back ? there : here};
        TRY(cast(c->ops, &what, &io, c->on));
        at += p->count;
    }
    return STATUS_OK;
}

enum status copies_sum(struct copies *c, float *gradients)
{
    struct transfer sum = {TRANSFER_all_reduce, F32, c->count, .x = c->sums, .work = c->work};
    if (c->group->size == 1) return STATUS_OK;
    TRY(move(c, gradients, false));
    if (!c->on->measuring || !c->group->transport) TRY(comm_run(c->group, &sum));
    TRY(move(c, gradients, true));
    return STATUS_OK;
}

enum status copies_squares(const struct copies *c, float *flat, double *squares)
{
    double sum = 0;
    *squares = 0;
    if (c->group->rank == 0) return STATUS_OK;
    TRY(move(c, flat, false));
    TRY(sum_squares(c->ops, &(struct sum_squares){c->count},
                    &(struct sum_squares_io){c->sums, &sum}, c->on));
    *squares = sum;
    return STATUS_OK;
}
