// SPDX-License-Identifier: Apache-2.0
#include "comm/lifted.h"

#include "base/text.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <stdlib.h>
#include <string.h>

struct group {
    struct comm wrapped;
    struct queue *queue;
};

/* A transfer in device memory. */
struct lift {
    struct transfer inner;
    struct arena memory;
    size_t x_bytes;
    bool separate; /* own is not part of x */
};

static size_t own_bytes(const struct transfer *t)
{
    size_t count =
        t->kind == TRANSFER_all_to_all ? transfer_part(t->receives, t->comm->size) : t->count;
    return count * transfer_element_bytes(t);
}

static size_t x_bytes(const struct transfer *t)
{
    bool parts = t->kind == TRANSFER_all_gather || t->kind == TRANSFER_reduce_scatter;
    size_t count = t->count * (parts ? (size_t)t->comm->size : 1);
    if (t->kind == TRANSFER_all_to_all) count = transfer_part(t->sends, t->comm->size);
    return count * transfer_element_bytes(t);
}

static enum status start(const struct comm *c, struct transfer *t)
{
    struct group *g = c->group;
    struct lift *l = heap(sizeof *l);
    size_t work = transfer_work_bytes(t->kind, t->dtype, t->count, c->size);
    const char *x = t->x, *own = t->own;
    struct arena sizes = {0};
    l->x_bytes = x_bytes(t);
    arena_alloc(&sizes, l->x_bytes, 1), arena_alloc(&sizes, own_bytes(t), 1);
    arena_alloc(&sizes, work, 1);
    TRY(arena_init(&l->memory, sizes.peak + 1, queue_device_allocator(g->queue)));
    l->inner = *t;
    l->inner.x = arena_alloc(&l->memory, l->x_bytes, 1);
    l->separate = own && (own < x || own >= x + l->x_bytes);
    l->inner.own = arena_alloc(&l->memory, own_bytes(t), 1);
    if (own && !l->separate) l->inner.own = (char *)l->inner.x + (own - x);
    l->inner.work = arena_alloc(&l->memory, work, 1);
    if (t->kind != TRANSFER_receive) TRY(queue_copy(g->queue, l->inner.x, x, l->x_bytes));
    l->inner.comm = &g->wrapped; /* not counted again */
    TRY(g->wrapped.transport->start(&g->wrapped, &l->inner));
    t->in_flight = l;
    return STATUS_OK;
}

static enum status wait(struct transfer *t)
{
    struct group *g = t->comm->group;
    struct lift *l = t->in_flight;
    TRY(g->wrapped.transport->wait(&l->inner));
    if (t->kind != TRANSFER_send) TRY(queue_copy(g->queue, t->x, l->inner.x, l->x_bytes));
    if (l->separate) TRY(queue_copy(g->queue, t->own, l->inner.own, own_bytes(t)));
    TRY(queue_wait(g->queue));
    arena_release(&l->memory);
    free(l);
    return STATUS_OK;
}

static enum status host_group(const struct comm *c, const struct comm **out)
{
    *out = &((const struct group *)c->group)->wrapped;
    return STATUS_OK;
}

static enum status declare_p2p(const struct comm *c, const struct p2p_message *sends, int num_sends,
                               const struct p2p_message *receives, int num_receives)
{
    const struct group *g = c->group;
    return comm_declare_p2p(&g->wrapped, sends, num_sends, receives, num_receives);
}

static enum status split(const struct comm *c, int color, int key, struct comm *out)
{
    const struct group *g = c->group;
    TRY(comm_split(&g->wrapped, color, key, out));
    lifted_wrap(out, g->queue);
    return STATUS_OK;
}

static void release(struct comm *c)
{
    struct group *g = c->group;
    comm_release(&g->wrapped);
    free(g);
}

void lifted_wrap(struct comm *c, struct queue *queue)
{
    static const struct transport lifted = {.name = "lifted",
                                            .split = split,
                                            .release = release,
                                            .start = start,
                                            .wait = wait,
                                            .host = host_group,
                                            .declare_p2p = declare_p2p};
    struct group *g = heap(sizeof *g);
    *g = (struct group){.wrapped = *c, .queue = queue};
    *c = (struct comm){c->rank, c->size, &lifted, g, c->counts};
}
