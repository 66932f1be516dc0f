// SPDX-License-Identifier: Apache-2.0
#include "comms/nccl/nccl.h"

#include "base/clock.h"
#include "base/text.h"
#include "comms/nccl/guard.h"
#include "comms/staged/staged.h"
#include "tensor/device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Multiprocessors that a message holds while it waits for the other rank. */
enum { CHANNEL_BLOCKS = 4 };

struct nccl {
    struct queue *on;
    struct guard *guard;
};

/* Messages of one tag from one rank to another: the link's ranks 0 and 1. */
struct channel {
    struct link link;
    enum transfer_kind kind;
    int peer, tag;
};

struct registered {
    void *handle;
    struct registered *next;
};

struct group {
    struct comm host; /* staged, over what was wrapped; owned */
    struct nccl *n;
    const char *name;
    struct link link; /* where there are others */
    struct channel *channels;
    int num_channels;
    struct registered *registered;
};

static struct group *group_of(const struct comm *c) { return c->group; }

enum status nccl_open(struct nccl **out, struct queue *on, double most_s)
{
    struct nccl *n = heap(sizeof *n);
    *n = (struct nccl){.on = on};
    enum status st = guard_open(&n->guard, on, most_s);
    if (st) free(n);
    TRY(st);
    *out = n;
    return STATUS_OK;
}

void nccl_close(struct nccl *n)
{
    if (!n) return;
    guard_close(n->guard);
    free(n);
}

/* --- transfers ----------------------------------------------------------------------------- */

/* Where the transfer goes, and its peer there; NULL: no channel is open for it. */
static struct link *route(struct group *g, const struct transfer *t, int *peer)
{
    *peer = t->peer;
    if (t->kind != TRANSFER_send && t->kind != TRANSFER_receive) return &g->link;
    *peer = t->kind == TRANSFER_send;
    for (int i = 0; i < g->num_channels; i++) {
        struct channel *c = &g->channels[i];
        if (c->kind == t->kind && c->peer == t->peer && c->tag == t->tag) return &c->link;
    }
    return NULL;
}

static enum status issue(struct flight *f, int peer)
{
    TRY(link_issue(f->link, &f->what, peer));
    TRY(lane_set(&f->link->lane, &f->done));
    return STATUS_OK;
}

static enum status watch(struct guard *guard, struct flight *f)
{
    TRY(lane_follow(&f->link->lane));
    TRY(lane_set(&f->link->lane, &f->begun));
    guard_watch(guard, f);
    return STATUS_OK;
}

/* After a failure the flight is nobody's. */
static enum status start_on_link(struct guard *guard, struct flight *f, int peer)
{
    enum status st = guard_enter(guard);
    if (st) guard_put_back(guard, f);
    TRY(st);
    if ((st = watch(guard, f)))
        guard_put_back(guard, f);
    else
        guard_issued(guard, f, !(st = issue(f, peer)));
    return guard_leave(guard, st);
}

static enum status start_by_host(const struct group *g, struct flight *f)
{
    f->what.comm = &g->host;
    enum status st = g->host.transport->start(&g->host, &f->what);
    if (st) guard_put_back(g->n->guard, f);
    return st;
}

static enum status start(const struct comm *c, struct transfer *t)
{
    struct group *g = group_of(c);
    struct guard *guard = g->n->guard;
    struct flight *f;
    int peer;
    if (c->size == 1) return g->host.transport->start(&g->host, t);
    if (!t->count) return STATUS_OK; /* nowhere */
    TRY(guard_take(guard, &f));
    f->what = *t;
    f->link = route(g, t, &peer);
    TRY(f->link ? start_on_link(guard, f, peer) : start_by_host(g, f));
    t->under_way = f;
    return STATUS_OK;
}

static enum status wait_on_link(struct guard *guard, struct transfer *t, struct flight *f)
{
    TRY(guard_enter(guard));
    enum status st = guard_leave(guard, lane_join(&f->link->lane, &f->done));
    if (!st && t->began_s > 0) {
        st = lane_wait(&f->done);
        t->over_s = clock_monotonic_s();
    }
    guard_waited(guard, f);
    return st;
}

static enum status wait(struct transfer *t)
{
    struct group *g = group_of(t->comm);
    struct guard *guard = g->n->guard;
    struct flight *f = t->under_way;
    if (!f) return STATUS_OK;
    if (f->link) {
        TRY(wait_on_link(guard, t, f));
        return STATUS_OK;
    }
    enum status st = g->host.transport->wait(&f->what);
    t->over_s = f->what.over_s;
    guard_put_back(guard, f);
    return st;
}

static enum status reduce(const struct comm *c, enum reduction how, double *values, size_t count)
{
    struct group *g = group_of(c);
    TRY(guard_enter(g->n->guard)); /* what is to be told of what was moved must not be wrong */
    TRY(guard_leave(g->n->guard, STATUS_OK));
    return g->host.transport->reduce(&g->host, how, values, count);
}

/* --- groups -------------------------------------------------------------------------------- */

static struct comm group_new(const struct comm *host, struct nccl *n, const char *name);

static enum status split_link(struct group *g, int color, int key, struct group *out)
{
    if (g->host.size == 1) return STATUS_OK;
    TRY(guard_enter(g->n->guard));
    enum status st = link_split(&g->link, out->host.size > 1 ? color : -1, key, &out->link);
    st = guard_leave(g->n->guard, st);
    if (st) link_cut(&out->link), link_close(&out->link);
    TRY(st);
    if (out->host.size > 1) guard_add(g->n->guard, &out->link);
    return STATUS_OK;
}

static enum status split(const struct comm *c, int color, int key, struct comm *out)
{
    struct group *g = group_of(c);
    struct comm host;
    TRY(comm_split(&g->host, color, key, &host));
    *out = group_new(&host, g->n, g->name);
    enum status st = split_link(g, color, key, group_of(out));
    if (st) comm_release(out);
    return st;
}

static void drop(struct group *g, struct link *l)
{
    if (l->comm || l->lane.stream) {
        guard_remove(g->n->guard, l);
        link_close(l);
    }
}

static void release(struct comm *c)
{
    struct group *g = group_of(c);
    for (struct registered *r = g->registered, *next; r; r = next) {
        next = r->next;
        link_unregister(&g->link, r->handle);
        free(r);
    }
    for (int i = 0; i < g->num_channels; i++) drop(g, &g->channels[i].link);
    drop(g, &g->link);
    free(g->channels);
    comm_release(&g->host);
    free(g);
}

static struct comm group_new(const struct comm *host, struct nccl *n, const char *name)
{
    static const struct transport nccl = {"nccl", split, release, start, wait, reduce};
    struct group *g = heap(sizeof *g);
    *g = (struct group){.host = *host, .n = n, .name = name};
    g->link = (struct link){.name = name, .rank = host->rank, .size = host->size};
    return (struct comm){host->rank, host->size, &nccl, g, host->counts};
}

/* Bytes that one rank has, as numbers that a sum leaves alone. */
static void spell(const unsigned char *bytes, size_t n, double *numbers)
{
    for (size_t i = 0; i < n; i++) numbers[i] = bytes[i];
}

static void unspell(const double *numbers, size_t n, unsigned char *bytes)
{
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)numbers[i];
}

/* All go on, or none: links that are open then are of no use. */
static enum status agree(const struct comm *c, enum status st, struct link_plan *plans, int count)
{
    st = comm_agree(c, st);
    for (int i = 0; st && i < count; i++) {
        link_cut(plans[i].link);
        link_close(plans[i].link);
    }
    return st;
}

enum status nccl_wrap(struct comm *c, struct nccl *n, const char *name)
{
    double numbers[LINK_ID_BYTES] = {0};
    struct link_plan plan;
    struct comm wrapped;
    enum status st = STATUS_OK;
    if (c->size > 1) {
        if (c->rank == 0) st = link_id(plan.id);
        if (c->rank == 0 && !st) spell(plan.id, LINK_ID_BYTES, numbers);
        TRY(comm_agree(c, st));
        TRY(comm_all_reduce(c, REDUCE_SUM, numbers, LINK_ID_BYTES));
        unspell(numbers, LINK_ID_BYTES, plan.id);
    }
    wrapped = group_new(c, n, name);
    struct group *g = group_of(&wrapped);
    plan.link = &g->link;
    if (c->size > 1) st = agree(c, link_open(&plan, 1, 0, n->on), &plan, 1);
    if (st) free(g);
    TRY(st);
    if (c->size > 1) guard_add(n->guard, &g->link);
    TRY(staged_wrap(&g->host, n->on));
    *c = wrapped;
    return STATUS_OK;
}

enum status nccl_register(const struct comm *c, void *at, size_t bytes)
{
    struct group *g = group_of(c);
    void *handle;
    if (c->size == 1 || !bytes) return STATUS_OK;
    TRY(guard_enter(g->n->guard));
    TRY(guard_leave(g->n->guard, link_register(&g->link, at, bytes, &handle)));
    struct registered *r = heap(sizeof *r);
    *r = (struct registered){handle, g->registered};
    g->registered = r;
    return STATUS_OK;
}

/* --- channels ------------------------------------------------------------------------------ */

/* What each rank sends: to whom, the tag, the channel's id. */
enum { ROW_PEER, ROW_TAG, ROW_ID, ROW = ROW_ID + LINK_ID_BYTES };

struct sends {
    double *rows; /* of rank r from r * most on */
    size_t most;
};

static double *row_of(const struct sends *s, int rank, int i)
{
    return s->rows + ((size_t)rank * s->most + (size_t)i) * ROW;
}

static enum status fill_rows(const struct comm *c, const struct nccl_message *sends, int count,
                             const struct sends *s)
{
    for (size_t i = 0; i < s->most; i++) row_of(s, c->rank, (int)i)[ROW_PEER] = -1;
    for (int i = 0; i < count; i++) {
        unsigned char id[LINK_ID_BYTES];
        double *row = row_of(s, c->rank, i);
        TRY(link_id(id));
        row[ROW_PEER] = sends[i].peer, row[ROW_TAG] = sends[i].tag;
        spell(id, LINK_ID_BYTES, row + ROW_ID);
    }
    return STATUS_OK;
}

static enum status share_rows(const struct comm *c, const struct nccl_message *sends, int count,
                              struct sends *s)
{
    double most = count;
    TRY(comm_all_reduce(c, REDUCE_MAX, &most, 1));
    s->most = (size_t)most;
    s->rows = heap((size_t)c->size * s->most * ROW * sizeof *s->rows + 1);
    TRY(comm_agree(c, fill_rows(c, sends, count, s)));
    TRY(comm_all_reduce(c, REDUCE_SUM, s->rows, (size_t)c->size * s->most * ROW));
    return STATUS_OK;
}

/* The row of what `from` sends with that tag to this rank. */
static enum status find_row(const struct comm *c, const struct sends *s,
                            const struct nccl_message *from, const double **out)
{
    for (size_t i = 0; i < s->most; i++) {
        *out = row_of(s, from->peer, (int)i);
        if ((int)(*out)[ROW_PEER] == c->rank && (int)(*out)[ROW_TAG] == from->tag) return STATUS_OK;
    }
    FAIL(COMM, "rank %d of a group of %d awaits messages with tag %d of rank %d, which sends none",
         c->rank, c->size, from->tag, from->peer);
}

/* The other rank of the channel is told nothing: what it is about is in the rows. */
static enum status plan_channels(const struct comm *c, const struct sends *s,
                                 const struct nccl_message *receives, int num_sends,
                                 struct link_plan *plans)
{
    struct group *g = group_of(c);
    for (int i = 0; i < g->num_channels; i++) {
        struct channel *to = &g->channels[i];
        const double *row = row_of(s, c->rank, i);
        bool sends = i < num_sends;
        if (!sends) TRY(find_row(c, s, &receives[i - num_sends], &row));
        to->kind = sends ? TRANSFER_send : TRANSFER_receive;
        to->peer = sends ? (int)row[ROW_PEER] : receives[i - num_sends].peer;
        to->tag = (int)row[ROW_TAG];
        to->link = (struct link){.name = g->name, .rank = !sends, .size = 2};
        plans[i].link = &to->link;
        unspell(row + ROW_ID, LINK_ID_BYTES, plans[i].id);
    }
    return STATUS_OK;
}

/* The first message of a channel waits on the host for the other rank: so one goes over all of them
 * at once, before any rank waits for anything else. */
static enum status greet(struct group *g, struct arena *memory)
{
    enum status st = STATUS_OK;
    TRY(link_issue_begin());
    for (int i = 0; i < g->num_channels && !st; i++) {
        struct channel *c = &g->channels[i];
        struct transfer hello = {.kind = c->kind, .count = 1};
        hello.x = arena_take(memory, 1, sizeof(float));
        st = lane_follow(&c->link.lane);
        if (!st) st = link_issue(&c->link, &hello, c->kind == TRANSFER_send);
    }
    enum status ended = link_issue_end();
    return st ? st : ended;
}

static enum status greet_all(struct group *g)
{
    size_t bytes = (size_t)g->num_channels * ARENA_ALIGN;
    struct arena memory;
    struct lane_mark done = {0};
    enum status st = STATUS_OK;
    TRY(arena_init(&memory, bytes, queue_memory(g->n->on)));
    TRY_OUT(lane_mark_open(&done));
    TRY_OUT(greet(g, &memory));
    for (int i = 0; i < g->num_channels; i++) {
        TRY_OUT(lane_set(&g->channels[i].link.lane, &done));
        TRY_OUT(lane_wait(&done));
    }
out:
    lane_mark_close(&done);
    arena_release(&memory);
    return st;
}

static enum status open_channels(const struct comm *c, struct link_plan *plans)
{
    struct group *g = group_of(c);
    TRY(link_open(plans, g->num_channels, CHANNEL_BLOCKS, g->n->on));
    if (g->num_channels) TRY(greet_all(g));
    return STATUS_OK;
}

enum status nccl_channels(const struct comm *c, const struct nccl_message *sends, int num_sends,
                          const struct nccl_message *receives, int num_receives)
{
    struct group *g = group_of(c);
    struct sends all = {0};
    struct link_plan *plans = NULL;
    enum status st = STATUS_OK;
    BUG_IF(g->num_channels);
    if (c->size == 1) return STATUS_OK;
    TRY_OUT(share_rows(c, sends, num_sends, &all));
    g->num_channels = num_sends + num_receives;
    g->channels = heap((size_t)g->num_channels * sizeof *g->channels + 1);
    plans = heap((size_t)g->num_channels * sizeof *plans + 1);
    TRY_OUT(comm_agree(c, plan_channels(c, &all, receives, num_sends, plans)));
    TRY_OUT(agree(c, open_channels(c, plans), plans, g->num_channels));
    for (int i = 0; i < g->num_channels; i++) guard_add(g->n->guard, &g->channels[i].link);
out:
    if (st) g->num_channels = 0;
    free(plans);
    free(all.rows);
    return st;
}

/* --- devices ------------------------------------------------------------------------------- */

/* FNV-1a, of the bits that a double holds. */
static double number_of(const char *name, uint64_t from, uint64_t *hash)
{
    *hash = from;
    for (; *name; name++) *hash = (*hash ^ (unsigned char)*name) * 0x100000001B3u;
    return (double)(*hash >> 12);
}

enum status nccl_same_device(const struct comm *world, struct queue *on, struct nccl_pair *out)
{
    char device[LANE_DEVICE_NAME] = "", host[256] = "";
    double *all = heap((size_t)world->size * sizeof *all);
    enum status st = STATUS_OK;
    uint64_t hash;
    *out = (struct nccl_pair){-1, -1};
    TRY_OUT(comm_agree(world, lane_device(on, device)));
    gethostname(host, sizeof host - 1);
    number_of(host, 0xCBF29CE484222325u, &hash);
    all[world->rank] = number_of(device, hash, &hash);
    TRY_OUT(comm_all_reduce(world, REDUCE_SUM, all, (size_t)world->size));
    for (int i = 0; i < world->size && out->first < 0; i++)
        for (int j = i + 1; j < world->size && out->first < 0; j++)
            if (!(all[i] < all[j] || all[i] > all[j])) *out = (struct nccl_pair){i, j};
out:
    free(all);
    return st;
}
