// SPDX-License-Identifier: Apache-2.0
#include "comm/staged/staged.h"

#include "base/text.h"
#include "tensor/device.h"

#include <stdlib.h>

/* A transfer in the host's memory, kept for the next one when it is over. */
struct flight {
    struct transfer inner;
    struct arena memory; /* x, then work */
    bool under_way;
    struct flight *next;
};

struct group {
    struct comm wrapped; /* owned */
    struct queue *on;
    struct flight *flights; /* owned */
};

/* Bytes from `begin` on of a transfer's x. */
struct range {
    size_t begin, bytes;
};

static size_t part_bytes(const struct transfer *t) { return t->count * transfer_element_bytes(t); }

static size_t x_bytes(const struct comm *c, const struct transfer *t)
{
    bool parts = t->kind == TRANSFER_all_gather || t->kind == TRANSFER_reduce_scatter;
    return part_bytes(t) * (parts ? (size_t)c->size : 1);
}

/* What this rank gives. */
static struct range given(const struct comm *c, const struct transfer *t)
{
    size_t part = part_bytes(t);
    switch (t->kind) {
    case TRANSFER_all_gather: return (struct range){(size_t)c->rank * part, part};
    case TRANSFER_broadcast: return (struct range){0, c->rank == t->peer ? part : 0};
    case TRANSFER_receive: return (struct range){0, 0};
    case TRANSFER_reduce_scatter:
    case TRANSFER_all_reduce:
    case TRANSFER_send:
    case TRANSFER_COUNT: break;
    }
    return (struct range){0, x_bytes(c, t)};
}

static enum status to_host(const struct group *g, const struct transfer *t, char *host)
{
    struct range r = given(&g->wrapped, t);
    TRY(queue_copy(g->on, host + r.begin, (const char *)t->x + r.begin, r.bytes));
    return STATUS_OK;
}

static enum status to_device(const struct group *g, const struct transfer *t, const char *host)
{
    size_t part = part_bytes(t), mine = (size_t)g->wrapped.rank * part;
    char *x = t->x;
    switch (t->kind) {
    case TRANSFER_all_gather: /* the others' parts */
        TRY(queue_copy(g->on, x, host, mine));
        TRY(queue_copy(g->on, x + mine + part, host + mine + part,
                       x_bytes(&g->wrapped, t) - mine - part));
        break;
    case TRANSFER_reduce_scatter: TRY(queue_copy(g->on, t->own, host + mine, part)); break;
    case TRANSFER_broadcast:
        if (g->wrapped.rank != t->peer) TRY(queue_copy(g->on, x, host, part));
        break;
    case TRANSFER_all_reduce:
    case TRANSFER_receive: TRY(queue_copy(g->on, x, host, part)); break;
    case TRANSFER_send:
    case TRANSFER_COUNT: break;
    }
    return STATUS_OK;
}

/* One that is free and large enough, or else one that is made so. */
static enum status flight_take(struct group *g, size_t bytes, struct flight **out)
{
    struct flight *best = NULL;
    for (struct flight *f = g->flights; f; f = f->next)
        if (!f->under_way && (!best || best->memory.size < bytes)) best = f;
    if (!best) {
        best = heap(sizeof *best);
        best->next = g->flights, g->flights = best;
    }
    if (best->memory.size < bytes) {
        arena_release(&best->memory);
        TRY(arena_init(&best->memory, bytes, queue_shared(g->on)));
    }
    arena_reset(&best->memory, 0);
    *out = best;
    return STATUS_OK;
}

static enum status start(const struct comm *c, struct transfer *t)
{
    struct group *g = c->group;
    size_t bytes = x_bytes(c, t), part = part_bytes(t);
    size_t work = transfer_work_bytes(t->kind, t->dtype, t->count, c->size);
    struct arena sizes = {0};
    struct flight *f;
    if (c->size == 1) {
        bool moves = t->kind == TRANSFER_reduce_scatter && t->own != t->x;
        if (moves) TRY(queue_copy(g->on, t->own, t->x, part));
        return STATUS_OK;
    }
    arena_take(&sizes, bytes, 1), arena_take(&sizes, work, 1);
    TRY(flight_take(g, sizes.peak + 1, &f)); /* nothing, too, has a place */
    char *host = arena_take(&f->memory, bytes, 1);
    TRY(to_host(g, t, host));
    f->inner = *t;
    f->inner.comm = &g->wrapped, f->inner.x = host;
    f->inner.work = work ? arena_take(&f->memory, work, 1) : NULL;
    if (t->kind == TRANSFER_reduce_scatter) f->inner.own = host + (size_t)c->rank * part;
    TRY(g->wrapped.transport->start(&g->wrapped, &f->inner));
    f->under_way = true;
    t->under_way = f;
    return STATUS_OK;
}

static enum status wait(struct transfer *t)
{
    struct flight *f = t->under_way;
    const struct group *g = t->comm->group;
    if (!f) return STATUS_OK;
    f->under_way = false;
    TRY(g->wrapped.transport->wait(&f->inner));
    t->over_s = f->inner.over_s;
    TRY(to_device(g, t, f->inner.x));
    return STATUS_OK;
}

static enum status host_group(const struct comm *c, const struct comm **out)
{
    *out = &((const struct group *)c->group)->wrapped;
    return STATUS_OK;
}

static enum status split(const struct comm *c, int color, int key, struct comm *out)
{
    const struct group *g = c->group;
    TRY(comm_split(&g->wrapped, color, key, out));
    TRY(staged_wrap(out, g->on));
    return STATUS_OK;
}

static void release(struct comm *c)
{
    struct group *g = c->group;
    for (struct flight *f = g->flights, *next; f; f = next) {
        next = f->next;
        if (f->under_way) continue; /* others may still write there */
        arena_release(&f->memory);
        free(f);
    }
    comm_release(&g->wrapped);
    free(g);
}

enum status staged_wrap(struct comm *c, struct queue *on)
{
    static const struct transport staged = {.name = "staged",
                                            .split = split,
                                            .release = release,
                                            .start = start,
                                            .wait = wait,
                                            .host = host_group};
    struct group *g = heap(sizeof *g);
    *g = (struct group){.wrapped = *c, .on = on};
    *c = (struct comm){c->rank, c->size, &staged, g, c->counts};
    return STATUS_OK;
}
