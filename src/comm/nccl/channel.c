// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/channel.h"

#include "base/text.h"
#include "tensor/device.h"

#include <stdlib.h>
#include <string.h>

/* Multiprocessors that a message holds while it waits for the other rank. */
enum { MOST_BLOCKS = 4 };

static struct channel *find(struct channel *list, enum transfer_kind kind, int peer, int tag)
{
    while (list && (list->kind != kind || list->peer != peer || list->tag != tag))
        list = list->next;
    return list;
}

struct channel *channel_find(struct channel *list, const struct transfer *t)
{
    return find(list, t->kind, t->peer, t->tag);
}

/* --- what each rank sends: to whom, the tag, the id of the channel's communicator ------------ */

struct declared_send {
    int peer, tag; /* peer -1: unused */
    unsigned char id[LINK_ID_BYTES];
};

/* Every rank's sends: rank r's are all[r * max_sends] on. */
struct send_table {
    struct declared_send *all; /* owned */
    size_t max_sends;
};

static struct declared_send *sends_of(const struct send_table *t, int rank)
{
    return t->all + (size_t)rank * t->max_sends;
}

static enum status fill_own_sends(const struct send_table *t, const struct comm *c,
                                  const struct messages *m)
{
    struct declared_send *own = sends_of(t, c->rank);
    for (size_t i = 0; i < t->max_sends; i++) own[i].peer = -1;
    for (int i = 0; i < m->num_sends; i++) {
        own[i].peer = m->sends[i].peer, own[i].tag = m->sends[i].tag;
        TRY(link_id(own[i].id));
    }
    return STATUS_OK;
}

static enum status gather_sends(const struct comm *c, const struct messages *m,
                                struct send_table *t)
{
    int64_t max_sends = m->num_sends;
    TRY(comm_all_reduce_int64(c, REDUCE_MAX, &max_sends, 1));
    t->max_sends = (size_t)max_sends;
    t->all = heap((size_t)c->size * t->max_sends * sizeof *t->all + 1);
    TRY(comm_agree(c, fill_own_sends(t, c, m)));
    TRY(comm_all_gather_bytes(c, t->all, t->max_sends * sizeof *t->all));
    return STATUS_OK;
}

/* The send of rank from.peer to this rank with that tag. */
static const struct declared_send *find_send(const struct send_table *t, const struct comm *c,
                                             struct message from)
{
    const struct declared_send *theirs = sends_of(t, from.peer);
    for (size_t i = 0; i < t->max_sends; i++)
        if (theirs[i].peer == c->rank && theirs[i].tag == from.tag) return &theirs[i];
    return NULL;
}

/* --- opening -------------------------------------------------------------------------------- */

struct opening {
    const struct comm *c;
    const char *name;
    struct queue *on;
    struct channel *channels; /* new ones */
    struct link_plan *plans;  /* of them, in the order in which they were added; owned */
    int count;
};

static void add_channel(struct opening *o, enum transfer_kind kind, struct message m,
                        const unsigned char id[LINK_ID_BYTES])
{
    struct channel *c = heap(sizeof *c);
    *c = (struct channel){.kind = kind, .peer = m.peer, .tag = m.tag, .next = o->channels};
    c->link = (struct link){.name = o->name, .rank = kind == TRANSFER_receive, .size = 2};
    o->channels = c;
    o->plans[o->count].link = &c->link;
    memcpy(o->plans[o->count++].id, id, LINK_ID_BYTES);
}

static enum status add_channels(struct opening *o, const struct send_table *t,
                                const struct messages *m)
{
    for (int i = 0; i < m->num_sends; i++)
        add_channel(o, TRANSFER_send, m->sends[i], sends_of(t, o->c->rank)[i].id);
    for (int i = 0; i < m->num_receives; i++) {
        const struct declared_send *send = find_send(t, o->c, m->receives[i]);
        if (!send)
            FAIL(COMM,
                 "rank %d of the group %s of %d awaits messages with tag %d of rank %d, "
                 "which sends none",
                 o->c->rank, o->name, o->c->size, m->receives[i].tag, m->receives[i].peer);
        add_channel(o, TRANSFER_receive, m->receives[i], send->id);
    }
    return STATUS_OK;
}

/* One number over every channel at once. */
static enum status greet(const struct opening *o, struct arena *memory)
{
    enum status st = STATUS_OK;
    TRY(link_issue_begin());
    for (struct channel *c = o->channels; c && !st; c = c->next) {
        struct transfer hello = {.kind = c->kind, .count = 1};
        hello.x = arena_take(memory, 1, sizeof(float));
        st = lane_follow(&c->link.lane);
        if (!st) st = link_issue(&c->link, &hello, c->kind == TRANSFER_send);
    }
    enum status ended = link_issue_end();
    return st ? st : ended;
}

/* The first message of a channel holds up the host until the other rank is there, too: so that is
 * done with now, before any rank waits for anything else. */
static enum status greet_all(const struct opening *o)
{
    struct arena memory;
    struct lane_mark done = {0};
    enum status st = STATUS_OK;
    TRY(arena_init(&memory, (size_t)o->count * ARENA_ALIGN, queue_memory(o->on)));
    TRY_OUT(lane_mark_open(&done));
    TRY_OUT(greet(o, &memory));
    for (struct channel *c = o->channels; c; c = c->next) {
        TRY_OUT(lane_set(&c->link.lane, &done));
        TRY_OUT(lane_wait(&done));
    }
out:
    lane_mark_close(&done);
    arena_release(&memory);
    return st;
}

static enum status open_all(const struct opening *o)
{
    TRY(link_open(o->plans, o->count, MOST_BLOCKS, o->on));
    if (o->count) TRY(greet_all(o));
    return STATUS_OK;
}

static void undo(struct opening *o)
{
    for (struct channel *c = o->channels, *next; c; c = next) {
        next = c->next;
        link_cut(&c->link);
        link_close(&c->link);
        free(c);
    }
}

/* Copies the messages that have no channel yet; returns how many. */
static int without_channel(const struct message *all, int count, enum transfer_kind kind,
                           struct channel *list, struct message *out)
{
    int n = 0;
    for (int i = 0; i < count; i++)
        if (!find(list, kind, all[i].peer, all[i].tag)) out[n++] = all[i];
    return n;
}

enum status channels_open(struct channel **list, const struct comm *c, const char *name,
                          struct queue *on, const struct messages *m)
{
    size_t most = (size_t)m->num_sends + (size_t)m->num_receives;
    struct opening o = {.c = c, .name = name, .on = on};
    struct message *sends = heap(most * sizeof *sends + 1), *receives = sends + m->num_sends;
    struct messages missing = {.sends = sends, .receives = receives};
    struct send_table table = {0};
    enum status st = STATUS_OK;
    missing.num_sends = without_channel(m->sends, m->num_sends, TRANSFER_send, *list, sends);
    missing.num_receives =
        without_channel(m->receives, m->num_receives, TRANSFER_receive, *list, receives);
    o.plans = heap(most * sizeof *o.plans + 1);
    TRY_OUT(gather_sends(c, &missing, &table));
    TRY_OUT(comm_agree(c, add_channels(&o, &table, &missing)));
    TRY_OUT(comm_agree(c, open_all(&o)));
    struct channel **end = &o.channels;
    while (*end) end = &(*end)->next;
    *end = *list, *list = o.channels;
out:
    if (st) undo(&o);
    free(o.plans), free(sends), free(table.all);
    return st;
}
