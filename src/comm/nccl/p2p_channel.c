// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/p2p_channel.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static struct p2p_channel *find_channel(struct p2p_channel *list, enum transfer_kind kind, int peer,
                                        int tag)
{
    while (list && (list->kind != kind || list->peer != peer || list->tag != tag))
        list = list->next;
    return list;
}

struct p2p_channel *p2p_channel_find(struct p2p_channel *list, const struct transfer *t)
{
    return find_channel(list, t->kind, t->peer, t->tag);
}

/* --- what each rank sends: to whom, the tag, the id of the channel's communicator --- */

struct declared_send {
    int peer, tag; /* peer -1: unused */
    unsigned char id[COMMUNICATOR_ID_BYTES];
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
                                  const struct p2p_messages *m)
{
    struct declared_send *own = sends_of(t, c->rank);
    for (size_t i = 0; i < t->max_sends; i++) own[i].peer = -1;
    for (int i = 0; i < m->num_sends; i++) {
        own[i].peer = m->sends[i].peer, own[i].tag = m->sends[i].tag;
        TRY(communicator_id(own[i].id));
    }
    return STATUS_OK;
}

static enum status gather_sends(const struct comm *c, const struct p2p_messages *m,
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
                                             struct p2p_message from)
{
    const struct declared_send *theirs = sends_of(t, from.peer);
    for (size_t i = 0; i < t->max_sends; i++)
        if (theirs[i].peer == c->rank && theirs[i].tag == from.tag) return &theirs[i];
    return NULL;
}

/* --- opening --- */

struct opening {
    const struct comm *c;
    const char *name;
    struct p2p_channel *channels; /* new ones */
    /* Of them, in the order in which they were added; its inits are owned. */
    struct communicator_opening comms;
};

static void add_channel(struct opening *o, enum transfer_kind kind, struct p2p_message m,
                        const unsigned char id[COMMUNICATOR_ID_BYTES])
{
    struct p2p_channel *c = heap(sizeof *c);
    *c = (struct p2p_channel){.kind = kind, .peer = m.peer, .tag = m.tag, .next = o->channels};
    c->communicator = (struct communicator){.name = o->name,
                                            .rank = kind == TRANSFER_receive,
                                            .size = 2,
                                            .max_blocks = P2P_CHANNEL_BLOCKS};
    o->channels = c;
    struct communicator_init *init = &o->comms.inits[o->comms.count++];
    *init = (struct communicator_init){.communicator = &c->communicator, .first = kind};
    init->peer = kind == TRANSFER_send; /* rank 0 sends */
    memcpy(init->id, id, COMMUNICATOR_ID_BYTES);
}

/* And prepares them to open. */
static enum status add_channels(struct opening *o, const struct send_table *t,
                                const struct p2p_messages *m)
{
    for (int i = 0; i < m->num_sends; i++)
        add_channel(o, TRANSFER_send, m->sends[i], sends_of(t, o->c->rank)[i].id);
    for (int i = 0; i < m->num_receives; i++) {
        const struct declared_send *send = find_send(t, o->c, m->receives[i]);
        if (!send)
            FAIL(COMM,
                 "rank %d in group %s of %d expects messages with tag %d from rank %d, which "
                 "declared no such send",
                 o->c->rank, o->name, o->c->size, m->receives[i].tag, m->receives[i].peer);
        add_channel(o, TRANSFER_receive, m->receives[i], send->id);
    }
    TRY(communicator_prepare(&o->comms));
    return STATUS_OK;
}

static void close_new_channels(struct opening *o)
{
    communicator_cancel(&o->comms);
    for (struct p2p_channel *c = o->channels, *next; c; c = next) {
        next = c->next;
        free(c);
    }
}

/* Counts the messages that have no channel yet, and copies them unless `out` is NULL. */
static int without_channel(const struct p2p_message *all, int count, enum transfer_kind kind,
                           struct p2p_channel *list, struct p2p_message *out)
{
    int n = 0;
    for (int i = 0; i < count; i++)
        if (!find_channel(list, kind, all[i].peer, all[i].tag)) {
            if (out) out[n] = all[i];
            n++;
        }
    return n;
}

int p2p_channel_count_missing(struct p2p_channel *list, const struct p2p_messages *m)
{
    return without_channel(m->sends, m->num_sends, TRANSFER_send, list, NULL) +
           without_channel(m->receives, m->num_receives, TRANSFER_receive, list, NULL);
}

enum status p2p_channel_open(struct p2p_channel **list, const struct comm *c, const char *name,
                             struct queue *queue, const struct p2p_messages *m)
{
    size_t most = (size_t)m->num_sends + (size_t)m->num_receives;
    struct opening o = {.c = c, .name = name, .comms.queue = queue};
    struct p2p_message *sends = heap(most * sizeof *sends + 1), *receives = sends + m->num_sends;
    struct p2p_messages missing = {.sends = sends, .receives = receives};
    struct send_table table = {0};
    enum status st = STATUS_OK;
    missing.num_sends = without_channel(m->sends, m->num_sends, TRANSFER_send, *list, sends);
    missing.num_receives =
        without_channel(m->receives, m->num_receives, TRANSFER_receive, *list, receives);
    o.comms.inits = heap(most * sizeof *o.comms.inits + 1);
    TRY_OUT(gather_sends(c, &missing, &table));
    TRY_OUT(comm_agree(c, add_channels(&o, &table, &missing)));
    TRY_OUT(comm_agree(c, communicator_open(&o.comms)));
    struct p2p_channel **end = &o.channels;
    while (*end) end = &(*end)->next;
    *end = *list, *list = o.channels;
out:
    if (st) close_new_channels(&o);
    free(o.comms.inits), free(sends), free(table.all);
    return st;
}
