// SPDX-License-Identifier: Apache-2.0
#include "comm/staged/staged.h"

#include "base/text.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <stdlib.h>

/* A transfer of the wrapped group, and its staging buffer; reused when the transfer is over. */
struct staged_transfer {
    struct transfer inner;
    struct arena memory; /* x, then own of a shift or all_to_all, then work */
    bool in_flight;
    struct staged_transfer *next;
};

struct staged_group {
    struct comm wrapped; /* owned */
    struct queue *queue;
    struct staged_transfer *transfers; /* owned */
};

/* A range of bytes of a transfer's x. */
struct staged_range {
    size_t begin, bytes;
};

static size_t part_bytes(const struct transfer *t) { return t->count * transfer_element_bytes(t); }

static size_t x_bytes(const struct comm *c, const struct transfer *t)
{
    if (t->kind == TRANSFER_all_to_all)
        return transfer_part(t->sends, c->size) * transfer_element_bytes(t);
    bool parts = t->kind == TRANSFER_all_gather || t->kind == TRANSFER_reduce_scatter;
    return part_bytes(t) * (parts ? (size_t)c->size : 1);
}

static bool has_own_buffer(const struct transfer *t)
{
    return t->kind == TRANSFER_shift || t->kind == TRANSFER_all_to_all;
}

/* What this rank receives as its own, and where the staging buffer, which begins with x, has it. */
static struct staged_range own_range(const struct comm *c, const struct transfer *t)
{
    size_t bytes = part_bytes(t);
    if (t->kind == TRANSFER_all_to_all)
        bytes = transfer_part(t->receives, c->size) * transfer_element_bytes(t);
    return (struct staged_range){has_own_buffer(t) ? x_bytes(c, t) : (size_t)c->rank * bytes,
                                 bytes};
}

/* The part of x that other ranks read. */
static struct staged_range range_to_send(const struct comm *c, const struct transfer *t)
{
    size_t part = part_bytes(t);
    switch (t->kind) {
    case TRANSFER_all_gather: return (struct staged_range){(size_t)c->rank * part, part};
    case TRANSFER_broadcast: return (struct staged_range){0, c->rank == t->peer ? part : 0};
    case TRANSFER_receive: return (struct staged_range){0, 0};
    case TRANSFER_reduce_scatter:
    case TRANSFER_all_reduce:
    case TRANSFER_shift:
    case TRANSFER_all_to_all:
    case TRANSFER_send:
    case TRANSFER_COUNT: break;
    }
    return (struct staged_range){0, x_bytes(c, t)};
}

static enum status copy_to_host(const struct staged_group *g, const struct transfer *t, char *host)
{
    struct staged_range r = range_to_send(&g->wrapped, t);
    TRY(queue_copy(g->queue, host + r.begin, (const char *)t->x + r.begin, r.bytes));
    return STATUS_OK;
}

static enum status copy_to_device(const struct staged_group *g, const struct transfer *t,
                                  const char *host)
{
    size_t part = part_bytes(t), mine = (size_t)g->wrapped.rank * part;
    const struct staged_range own = own_range(&g->wrapped, t);
    char *x = t->x;
    switch (t->kind) {
    case TRANSFER_all_gather: /* the other ranks' parts */
        TRY(queue_copy(g->queue, x, host, mine));
        TRY(queue_copy(g->queue, x + mine + part, host + mine + part,
                       x_bytes(&g->wrapped, t) - mine - part));
        break;
    case TRANSFER_reduce_scatter:
    case TRANSFER_shift:
    case TRANSFER_all_to_all: TRY(queue_copy(g->queue, t->own, host + own.begin, own.bytes)); break;
    case TRANSFER_broadcast:
        if (g->wrapped.rank != t->peer) TRY(queue_copy(g->queue, x, host, part));
        break;
    case TRANSFER_all_reduce:
    case TRANSFER_receive: TRY(queue_copy(g->queue, x, host, part)); break;
    case TRANSFER_send:
    case TRANSFER_COUNT: break;
    }
    return STATUS_OK;
}

/* A free record with a buffer of at least `bytes`: any free one, grown if necessary, or a new
 * one. */
static enum status acquire_transfer(struct staged_group *g, size_t bytes,
                                    struct staged_transfer **out)
{
    struct staged_transfer *best = NULL;
    for (struct staged_transfer *s = g->transfers; s; s = s->next)
        if (!s->in_flight && (!best || best->memory.size < bytes)) best = s;
    if (!best) {
        best = heap(sizeof *best);
        best->next = g->transfers, g->transfers = best;
    }
    if (best->memory.size < bytes) {
        arena_release(&best->memory);
        TRY(arena_init(&best->memory, bytes, queue_shared_allocator(g->queue)));
    }
    arena_reset(&best->memory, 0);
    *out = best;
    return STATUS_OK;
}

static enum status start(const struct comm *c, struct transfer *t)
{
    struct staged_group *g = c->group;
    size_t bytes = x_bytes(c, t);
    size_t work = transfer_work_bytes(t->kind, t->dtype, t->count, c->size);
    struct arena sizes = {0};
    struct staged_transfer *s;
    if (c->size == 1) {
        size_t moved = transfer_bytes_to_own(t);
        if (moved) TRY(queue_copy(g->queue, t->own, t->x, moved));
        return STATUS_OK;
    }
    const struct staged_range own = own_range(&g->wrapped, t);
    if (has_own_buffer(t)) bytes += own.bytes;
    arena_alloc(&sizes, bytes, 1), arena_alloc(&sizes, work, 1);
    TRY(acquire_transfer(g, sizes.peak + 1, &s)); /* an empty transfer needs an address, too */
    char *host = arena_alloc(&s->memory, bytes, 1);
    TRY(copy_to_host(g, t, host));
    s->inner = *t;
    s->inner.comm = &g->wrapped, s->inner.x = host;
    s->inner.work = work ? arena_alloc(&s->memory, work, 1) : NULL;
    if (t->own) s->inner.own = host + own.begin;
    TRY(g->wrapped.transport->start(&g->wrapped, &s->inner));
    s->in_flight = true;
    t->in_flight = s;
    return STATUS_OK;
}

static enum status wait(struct transfer *t)
{
    struct staged_transfer *s = t->in_flight;
    const struct staged_group *g = t->comm->group;
    if (!s) return STATUS_OK;
    TRY(g->wrapped.transport->wait(&s->inner)); /* after a failure others may still write to it */
    s->in_flight = false;
    t->ended_s = s->inner.ended_s;
    TRY(copy_to_device(g, t, s->inner.x));
    return STATUS_OK;
}

static enum status host_group(const struct comm *c, const struct comm **out)
{
    *out = &((const struct staged_group *)c->group)->wrapped;
    return STATUS_OK;
}

static enum status split(const struct comm *c, int color, int key, struct comm *out)
{
    const struct staged_group *g = c->group;
    TRY(comm_split(&g->wrapped, color, key, out));
    TRY(staged_wrap(out, g->queue));
    return STATUS_OK;
}

static void release(struct comm *c)
{
    struct staged_group *g = c->group;
    for (struct staged_transfer *s = g->transfers, *next; s; s = next) {
        next = s->next;
        if (s->in_flight) continue; /* other ranks may still write to it */
        arena_release(&s->memory);
        free(s);
    }
    comm_release(&g->wrapped);
    free(g);
}

enum status staged_wrap(struct comm *c, struct queue *queue)
{
    static const struct transport staged = {.name = "staged",
                                            .split = split,
                                            .release = release,
                                            .start = start,
                                            .wait = wait,
                                            .host = host_group};
    struct staged_group *g = heap(sizeof *g);
    *g = (struct staged_group){.wrapped = *c, .queue = queue};
    *c = (struct comm){c->rank, c->size, &staged, g, c->counts};
    return STATUS_OK;
}
