// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/channel.h"

#include "base/text.h"
#include "tensor/device.h"

#include <stdlib.h>

/* Multiprocessors that a message holds while it waits for the other rank. */
enum { MOST_BLOCKS = 4 };

void id_to_numbers(const unsigned char id[LINK_ID_BYTES], double numbers[LINK_ID_BYTES])
{
    for (int i = 0; i < LINK_ID_BYTES; i++) numbers[i] = id[i];
}

void id_from_numbers(const double numbers[LINK_ID_BYTES], unsigned char id[LINK_ID_BYTES])
{
    for (int i = 0; i < LINK_ID_BYTES; i++) id[i] = (unsigned char)numbers[i];
}

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

/* --- what each rank sends: to whom, the tag, the channel's id ------------------------------- */

enum { ROW_PEER, ROW_TAG, ROW_ID, ROW = ROW_ID + LINK_ID_BYTES };

struct rows {
    double *all; /* of rank r from r * most on; owned */
    size_t most; /* of a rank */
};

static double *row_of(const struct rows *r, int rank, size_t i)
{
    return r->all + ((size_t)rank * r->most + i) * ROW;
}

static enum status fill_rows(const struct comm *c, const struct message *sends, int count,
                             const struct rows *r)
{
    for (size_t i = 0; i < r->most; i++) row_of(r, c->rank, i)[ROW_PEER] = -1;
    for (int i = 0; i < count; i++) {
        unsigned char id[LINK_ID_BYTES];
        double *row = row_of(r, c->rank, (size_t)i);
        TRY(link_id(id));
        row[ROW_PEER] = sends[i].peer, row[ROW_TAG] = sends[i].tag;
        id_to_numbers(id, row + ROW_ID);
    }
    return STATUS_OK;
}

static enum status share_rows(const struct comm *c, const struct message *sends, int count,
                              struct rows *r)
{
    double most = count;
    TRY(comm_all_reduce(c, REDUCE_MAX, &most, 1));
    r->most = (size_t)most;
    r->all = heap((size_t)c->size * r->most * ROW * sizeof *r->all + 1);
    TRY(comm_agree(c, fill_rows(c, sends, count, r)));
    TRY(comm_all_reduce(c, REDUCE_SUM, r->all, (size_t)c->size * r->most * ROW));
    return STATUS_OK;
}

/* Of what `from` sends with that tag to this rank. */
static const double *find_row(const struct comm *c, const struct rows *r, struct message from)
{
    for (size_t i = 0; i < r->most; i++) {
        const double *row = row_of(r, from.peer, i);
        if ((int)row[ROW_PEER] == c->rank && (int)row[ROW_TAG] == from.tag) return row;
    }
    return NULL;
}

/* --- opening -------------------------------------------------------------------------------- */

struct opening {
    const struct comm *c;
    const char *name;
    struct queue *on;
    struct channel *channels; /* new ones */
    struct link_plan *plans;  /* of them, in the same order; owned */
    int count;
};

static void add(struct opening *o, enum transfer_kind kind, struct message m, const double *row)
{
    struct channel *c = heap(sizeof *c);
    *c = (struct channel){.kind = kind, .peer = m.peer, .tag = m.tag, .next = o->channels};
    c->link = (struct link){.name = o->name, .rank = kind == TRANSFER_receive, .size = 2};
    o->channels = c;
    o->plans[o->count].link = &c->link;
    id_from_numbers(row + ROW_ID, o->plans[o->count++].id);
}

static enum status plan(struct opening *o, const struct rows *r, const struct message *sends,
                        int num_sends, const struct message *receives, int num_receives)
{
    for (int i = 0; i < num_sends; i++)
        add(o, TRANSFER_send, sends[i], row_of(r, o->c->rank, (size_t)i));
    for (int i = 0; i < num_receives; i++) {
        const double *row = find_row(o->c, r, receives[i]);
        if (!row)
            FAIL(COMM,
                 "rank %d of the group %s of %d awaits messages with tag %d of rank %d, "
                 "which sends none",
                 o->c->rank, o->name, o->c->size, receives[i].tag, receives[i].peer);
        add(o, TRANSFER_receive, receives[i], row);
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

/* Those that are not in the list yet; returns how many. */
static int news(const struct message *all, int count, enum transfer_kind kind, struct channel *list,
                struct message *fresh)
{
    int n = 0;
    for (int i = 0; i < count; i++)
        if (!find(list, kind, all[i].peer, all[i].tag)) fresh[n++] = all[i];
    return n;
}

enum status channels_open(const struct comm *c, const char *name, struct queue *on,
                          const struct message *sends, int num_sends,
                          const struct message *receives, int num_receives, struct channel **list)
{
    size_t most = (size_t)num_sends + (size_t)num_receives;
    struct opening o = {.c = c, .name = name, .on = on};
    struct message *out = heap(most * sizeof *out + 1), *in = out + num_sends;
    struct rows rows = {0};
    enum status st = STATUS_OK;
    num_sends = news(sends, num_sends, TRANSFER_send, *list, out);
    num_receives = news(receives, num_receives, TRANSFER_receive, *list, in);
    o.plans = heap(most * sizeof *o.plans + 1);
    TRY_OUT(share_rows(c, out, num_sends, &rows));
    TRY_OUT(comm_agree(c, plan(&o, &rows, out, num_sends, in, num_receives)));
    TRY_OUT(comm_agree(c, open_all(&o)));
    struct channel **end = &o.channels;
    while (*end) end = &(*end)->next;
    *end = *list, *list = o.channels;
out:
    if (st) undo(&o);
    free(o.plans), free(out), free(rows.all);
    return st;
}
