// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/nccl/channel.h"
#include "comm/nccl/guard.h"
#include "comm/staged/staged.h"
#include "tensor/device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct nccl {
    struct queue *on;
    struct guard *guard;
};

/* Memory that the library knows. */
struct lent {
    void *at, *handle;
    struct lent *next;
};

struct group {
    struct comm host; /* staged, over what was wrapped; owned */
    struct nccl *n;
    const char *name;
    struct link link;         /* where there are others */
    struct channel *channels; /* owned */
    struct lent *lent;        /* owned */
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
    struct channel *c = channel_find(g->channels, t);
    *peer = t->kind == TRANSFER_send;
    return c ? &c->link : NULL;
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

/* After a failure nothing is exchanged on the host either: it may describe data that never came. */
static enum status host_group(const struct comm *c, const struct comm **out)
{
    struct group *g = group_of(c);
    TRY(guard_enter(g->n->guard));
    TRY(guard_leave(g->n->guard, STATUS_OK));
    *out = &g->host;
    return STATUS_OK;
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

static void take_back(struct group *g, struct lent **at)
{
    struct lent *gone = *at;
    *at = gone->next;
    link_unregister(&g->link, gone->handle);
    free(gone);
}

static enum status lend(const struct comm *c, void *at, size_t bytes)
{
    struct group *g = group_of(c);
    void *handle;
    struct lent **l = &g->lent;
    while (*l && (*l)->at != at) l = &(*l)->next;
    if (*l) take_back(g, l);
    if (!bytes) return STATUS_OK;
    TRY(guard_enter(g->n->guard));
    if (guard_leave(g->n->guard, link_register(&g->link, at, bytes, &handle))) {
        log_line(LOG_WARN, "%s; transfers copy instead", status_message());
        return STATUS_OK;
    }
    struct lent *more = heap(sizeof *more);
    *more = (struct lent){at, handle, g->lent};
    g->lent = more;
    return STATUS_OK;
}

static void release(struct comm *c)
{
    struct group *g = group_of(c);
    while (g->lent) take_back(g, &g->lent);
    for (struct channel *i = g->channels, *next; i; i = next) {
        next = i->next;
        drop(g, &i->link);
        free(i);
    }
    drop(g, &g->link);
    comm_release(&g->host);
    free(g);
}

static enum status expect(const struct comm *c, const struct message *sends, int num_sends,
                          const struct message *receives, int num_receives)
{
    struct group *g = group_of(c);
    struct channel *before = g->channels;
    struct messages messages = {sends, receives, num_sends, num_receives};
    TRY(channels_open(&g->channels, &g->host, g->name, g->n->on, &messages));
    for (struct channel *i = g->channels; i != before; i = i->next)
        guard_add(g->n->guard, &i->link);
    return STATUS_OK;
}

static struct comm group_new(const struct comm *host, struct nccl *n, const char *name)
{
    static const struct transport nccl = {.name = "nccl",
                                          .split = split,
                                          .release = release,
                                          .start = start,
                                          .wait = wait,
                                          .host = host_group,
                                          .expect = expect,
                                          .lend = lend};
    struct group *g = heap(sizeof *g);
    *g = (struct group){.host = *host, .n = n, .name = name};
    g->link = (struct link){.name = name, .rank = host->rank, .size = host->size};
    return (struct comm){host->rank, host->size, &nccl, g, host->counts};
}

enum status nccl_wrap(struct comm *c, struct nccl *n, const char *name)
{
    struct link_plan plan;
    struct comm wrapped;
    enum status st = STATUS_OK;
    if (c->size > 1) {
        TRY(comm_agree(c, c->rank == 0 ? link_id(plan.id) : STATUS_OK));
        TRY(comm_broadcast_bytes(c, 0, plan.id, sizeof plan.id));
    }
    wrapped = group_new(c, n, name);
    struct group *g = group_of(&wrapped);
    plan.link = &g->link;
    if (c->size > 1) st = comm_agree(c, link_open(&plan, 1, 0, n->on));
    if (st) { /* some ranks have no use for theirs */
        link_cut(&g->link);
        link_close(&g->link);
        free(g);
    }
    TRY(st);
    if (c->size > 1) guard_add(n->guard, &g->link);
    TRY(staged_wrap(&g->host, n->on));
    *c = wrapped;
    return STATUS_OK;
}

/* --- devices ------------------------------------------------------------------------------- */

/* Which device of which host a rank has. */
struct rank_device {
    char host[256], device[LANE_DEVICE_NAME];
};

static bool is_same_device(const struct rank_device *a, const struct rank_device *b)
{
    return !strcmp(a->host, b->host) && !strcmp(a->device, b->device);
}

enum status nccl_same_device(const struct comm *world, struct queue *on, struct nccl_pair *out)
{
    struct rank_device *all = heap((size_t)world->size * sizeof *all), *mine = all + world->rank;
    enum status st = STATUS_OK;
    *out = (struct nccl_pair){-1, -1};
    TRY_OUT(comm_agree(world, lane_device(on, mine->device)));
    gethostname(mine->host, sizeof mine->host - 1);
    TRY_OUT(comm_all_gather_bytes(world, all, sizeof *all));
    for (int i = 0; i < world->size && out->first < 0; i++)
        for (int j = i + 1; j < world->size && out->first < 0; j++)
            if (is_same_device(&all[i], &all[j])) *out = (struct nccl_pair){i, j};
out:
    free(all);
    return st;
}
