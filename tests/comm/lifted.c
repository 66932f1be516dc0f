// SPDX-License-Identifier: Apache-2.0
#include "comm/lifted.h"

#include "base/text.h"
#include "tensor/device.h"

#include <stdlib.h>
#include <string.h>

struct group {
    struct comm wrapped;
    struct queue *on;
};

/* The transfer on the device. */
struct lift {
    struct transfer inner;
    struct arena memory;
    size_t x_bytes;
    bool apart; /* own is no part of x */
};

static size_t own_bytes(const struct transfer *t) { return t->count * transfer_element_bytes(t); }

static enum status start(const struct comm *c, struct transfer *t)
{
    struct group *g = c->group;
    struct lift *l = heap(sizeof *l);
    bool parts = t->kind == TRANSFER_all_gather || t->kind == TRANSFER_reduce_scatter;
    size_t work = transfer_work_bytes(t->kind, t->dtype, t->count, c->size);
    const char *x = t->x, *own = t->own;
    struct arena sizes = {0};
    l->x_bytes = own_bytes(t) * (parts ? (size_t)c->size : 1);
    arena_take(&sizes, l->x_bytes, 1), arena_take(&sizes, own_bytes(t), 1);
    arena_take(&sizes, work, 1);
    TRY(arena_init(&l->memory, sizes.peak + 1, queue_memory(g->on)));
    l->inner = *t;
    l->inner.x = arena_take(&l->memory, l->x_bytes, 1);
    l->apart = own && (own < x || own > x + l->x_bytes);
    l->inner.own = arena_take(&l->memory, own_bytes(t), 1);
    if (own && !l->apart) l->inner.own = (char *)l->inner.x + (own - x);
    l->inner.work = arena_take(&l->memory, work, 1);
    if (t->kind != TRANSFER_receive) TRY(queue_copy(g->on, l->inner.x, x, l->x_bytes));
    l->inner.comm = &g->wrapped; /* it counts once */
    TRY(g->wrapped.transport->start(&g->wrapped, &l->inner));
    t->under_way = l;
    return STATUS_OK;
}

static enum status wait(struct transfer *t)
{
    struct group *g = t->comm->group;
    struct lift *l = t->under_way;
    TRY(g->wrapped.transport->wait(&l->inner));
    if (t->kind != TRANSFER_send) TRY(queue_copy(g->on, t->x, l->inner.x, l->x_bytes));
    if (l->apart) TRY(queue_copy(g->on, t->own, l->inner.own, own_bytes(t)));
    TRY(queue_wait(g->on));
    arena_release(&l->memory);
    free(l);
    return STATUS_OK;
}

static enum status host_group(const struct comm *c, const struct comm **out)
{
    *out = &((const struct group *)c->group)->wrapped;
    return STATUS_OK;
}

static enum status expect(const struct comm *c, const struct message *sends, int num_sends,
                          const struct message *receives, int num_receives)
{
    const struct group *g = c->group;
    return comm_expect(&g->wrapped, sends, num_sends, receives, num_receives);
}

static enum status split(const struct comm *c, int color, int key, struct comm *out)
{
    const struct group *g = c->group;
    TRY(comm_split(&g->wrapped, color, key, out));
    lifted_wrap(out, g->on);
    return STATUS_OK;
}

static void release(struct comm *c)
{
    struct group *g = c->group;
    comm_release(&g->wrapped);
    free(g);
}

void lifted_wrap(struct comm *c, struct queue *on)
{
    static const struct transport lifted = {.name = "lifted",
                                            .split = split,
                                            .release = release,
                                            .start = start,
                                            .wait = wait,
                                            .host = host_group,
                                            .expect = expect};
    struct group *g = heap(sizeof *g);
    *g = (struct group){.wrapped = *c, .on = on};
    *c = (struct comm){c->rank, c->size, &lifted, g, c->counts};
}
