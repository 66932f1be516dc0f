// SPDX-License-Identifier: Apache-2.0
#include "parallel/plan.h"

#include "parallel/ring.h"
#include "tensor/device.h"
#include "tensor/queue.h"

static enum status do_nothing(const struct parallel_plan *p, enum boundary at,
                              enum direction direction, struct crossing *x, struct queue *queue)
{
    (void)p, (void)at, (void)direction, (void)queue;
    return boundary_do_overlapped(x);
}

const struct parallel_plan *plan_single_device(void)
{
    static const struct parallel_plan alone = {.parts = 1, .cross = do_nothing};
    return &alone;
}

/* Crossings out of a block in forward, and into it in backward, reduce; the others gather. */
static bool is_reduction(enum boundary at, enum direction direction)
{
    bool leaves = at == EMBED_OUT || at == ATTN_OUT || at == MLP_OUT;
    return leaves == (direction == FORWARD);
}

/* Does a crossing's overlapped work while the transfer is in flight. */
static enum status run_transfer(const struct comm *group, struct transfer *t,
                                const struct crossing *c, struct queue *queue)
{
    bool transfers = comm_transfers(group, queue->sizing);
    size_t mark = arena_mark(&queue->scratch);
    size_t bytes = transfer_work_bytes(t->kind, t->dtype, t->count, group->size);
    struct failure first = {0};
    enum status st = STATUS_OK;
    t->work = arena_alloc(&queue->scratch, bytes, 1);
    double begin = trace_begin(queue->trace);
    t->begins_first = c->overlapped != NULL;
    if (transfers) TRY_OUT(comm_start(group, t));
    if (c->overlapped) {
        status_save(&first, boundary_do_overlapped(c)); /* t must not go while it is in flight */
        begin = trace_begin(queue->trace);
    }
    if (transfers) status_save(&first, comm_wait(t));
    TRY_OUT(status_restore(&first));
    if (transfers) trace_end(queue->trace, transfer_name(t->kind), begin);
out:
    arena_reset(&queue->scratch, mark);
    return st;
}

static enum status cross(const struct parallel_plan *plan, enum boundary at,
                         enum direction direction, struct crossing *c, struct queue *queue)
{
    const struct group_plan *p = (const struct group_plan *)plan;
    const struct comm *g = p->group;
    size_t elements = (size_t)c->rows * (size_t)c->columns, part = elements / (size_t)g->size;
    bool reduces = at != LOSS && is_reduction(at, direction);
    struct transfer t = {.dtype = c->dtype, .x = c->x, .is_bytes = c->is_bytes};
    if (at == QK_NORM) {
        t.kind = TRANSFER_all_reduce, t.count = elements;
    } else if (at != LOSS && !plan->sequence_parallel) {
        BUG_IF(direction == BACKWARD);
        t.kind = TRANSFER_all_reduce, t.count = elements;
        if (!reduces) return boundary_do_overlapped(c);
    } else {
        BUG_IF(c->rows % g->size);
        t.kind = reduces ? TRANSFER_reduce_scatter : TRANSFER_all_gather, t.count = part;
        if (reduces && c->x) t.own = (char *)c->x + (size_t)g->rank * part * dtype_bytes(c->dtype);
    }
    TRY(run_transfer(g, &t, c, queue));
    return STATUS_OK;
}

static enum status gather_amaxes(const struct parallel_plan *plan, float *amaxes,
                                 struct queue *queue)
{
    const struct comm *g = ((const struct group_plan *)plan)->group;
    struct transfer t = {.kind = TRANSFER_all_gather, .dtype = F32, .count = 1, .x = amaxes};
    TRY(run_transfer(g, &t, &(struct crossing){0}, queue));
    return STATUS_OK;
}

static enum status attend(const struct parallel_plan *plan, const struct ops *ops,
                          const struct attention *a, const struct attention_fwd *io,
                          struct queue *queue)
{
    return ring_forward(((const struct group_plan *)plan)->contexts, ops, a, io, queue);
}

static enum status attend_backward(const struct parallel_plan *plan, const struct ops *ops,
                                   const struct attention *a, const struct attention_bwd *io,
                                   struct queue *queue)
{
    return ring_backward(((const struct group_plan *)plan)->contexts, ops, a, io, queue);
}

void plan_init_tensor(struct group_plan *p, const struct comm *group, bool sequence_parallel)
{
    *p = (struct group_plan){.plan = {.parts = group->size,
                                      .part = group->rank,
                                      .sequence_parallel = sequence_parallel && group->size > 1,
                                      .cross = cross,
                                      .gather_amaxes = gather_amaxes},
                             .group = group};
    if (group->size == 1) p->plan = *plan_single_device();
}

void plan_add_context(struct group_plan *p, const struct comm *contexts)
{
    if (contexts->size == 1) return;
    p->contexts = contexts;
    p->plan.contexts = contexts->size, p->plan.context = contexts->rank;
    p->plan.attend = attend, p->plan.attend_backward = attend_backward;
}
