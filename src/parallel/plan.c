// SPDX-License-Identifier: Apache-2.0
#include "parallel/plan.h"

#include "parallel/ring.h"
#include "tensor/device.h"
#include "tensor/queue.h"

static enum status stay(const struct plan *p, enum boundary at, enum direction way,
                        struct crossing *x, struct queue *on)
{
    (void)p, (void)at, (void)way, (void)x, (void)on;
    return STATUS_OK;
}

const struct plan *plan_alone(void)
{
    static const struct plan alone = {.parts = 1, .cross = stay};
    return &alone;
}

/* Forward out of a block, and backward out of what is in front of it, are sums. */
static bool is_sum(enum boundary at, enum direction way)
{
    bool leaves = at == EMBED_OUT || at == ATTN_OUT || at == MLP_OUT;
    return leaves == (way == FORWARD);
}

static enum status move(const struct comm *group, struct transfer *t, struct queue *on)
{
    size_t mark = arena_mark(&on->scratch);
    size_t bytes = transfer_work_bytes(t->kind, t->dtype, t->count, group->size);
    t->work = arena_take(&on->scratch, bytes, 1);
    arena_reset(&on->scratch, mark);
    if (on->measuring && group->transport) return STATUS_OK;
    double begin = trace_begin(on->trace);
    TRY(comm_run(group, t));
    trace_end(on->trace, transfer_name(t->kind), begin);
    return STATUS_OK;
}

static enum status cross(const struct plan *plan, enum boundary at, enum direction way,
                         struct crossing *c, struct queue *on)
{
    const struct tensor_plan *p = (const struct tensor_plan *)plan;
    const struct comm *g = p->group;
    size_t all = (size_t)c->rows * (size_t)c->columns, part = all / (size_t)g->size;
    bool sum = at != LOSS && is_sum(at, way);
    struct transfer t = {.dtype = c->dtype, .x = c->x};
    if (at != LOSS && !plan->stream_cut) {
        BUG_IF(way == BACKWARD);
        t.kind = TRANSFER_all_reduce, t.count = all;
        if (!sum) return STATUS_OK;
    } else {
        BUG_IF(c->rows % g->size);
        t.kind = sum ? TRANSFER_reduce_scatter : TRANSFER_all_gather, t.count = part;
        if (sum && c->x) t.own = (char *)c->x + (size_t)g->rank * part * dtype_bytes(c->dtype);
    }
    TRY(move(g, &t, on));
    return STATUS_OK;
}

/* Ranks of a plan hear of a transfer of the same cost. */
static enum status largest(const struct plan *plan, float *x, struct queue *on)
{
    const struct comm *g = ((const struct tensor_plan *)plan)->group;
    struct transfer counted = {.kind = TRANSFER_all_reduce, .dtype = F32, .count = 1, .x = x};
    if (!g->transport) TRY(move(g, &counted, on));
    if (on->measuring) return STATUS_OK;
    double begin = trace_begin(on->trace);
    TRY(queue_wait(on));
    double value = (double)*x;
    TRY(comm_all_reduce(g, REDUCE_MAX, &value, 1));
    trace_end(on->trace, "largest number", begin);
    *x = (float)value;
    return STATUS_OK;
}

static enum status attend(const struct plan *plan, const struct ops *ops, const struct attention *a,
                          const struct attention_fwd *io, struct queue *on)
{
    return ring_forward(((const struct tensor_plan *)plan)->contexts, ops, a, io, on);
}

static enum status attend_backward(const struct plan *plan, const struct ops *ops,
                                   const struct attention *a, const struct attention_bwd *io,
                                   struct queue *on)
{
    return ring_backward(((const struct tensor_plan *)plan)->contexts, ops, a, io, on);
}

void tensor_plan_init(struct tensor_plan *p, const struct comm *group, bool stream_cut)
{
    *p = (struct tensor_plan){.plan = {.parts = group->size,
                                       .part = group->rank,
                                       .stream_cut = stream_cut && group->size > 1,
                                       .cross = cross,
                                       .largest = largest},
                              .group = group};
    if (group->size == 1) p->plan = *plan_alone();
}

void tensor_plan_contexts(struct tensor_plan *p, const struct comm *contexts)
{
    if (contexts->size == 1) return;
    p->contexts = contexts;
    p->plan.contexts = contexts->size, p->plan.context = contexts->rank;
    p->plan.attend = attend, p->plan.attend_backward = attend_backward;
}
