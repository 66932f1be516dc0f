// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl.h"

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/nccl/p2p_channel.h"
#include "comm/nccl/watchdog.h"
#include "comm/staged/staged.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <stdlib.h>
#include <string.h>

struct nccl {
    struct queue *queue;
    struct watchdog *watchdog;
    bool leaves; /* a communicator could not be closed: the others are left, without waiting */
    int num_communicators, num_side_streams, num_channels; /* open now */
};

/* A user buffer that is registered with the library. */
struct nccl_buffer {
    void *at, *handle;
    struct nccl_buffer *next;
};

struct nccl_group {
    struct comm host; /* comm/staged over the wrapped group; owned */
    struct nccl *n;
    const char *name;
    enum comm_use use;
    struct communicator communicator; /* not open in a group of one, or for messages only */
    struct p2p_channel *channels;     /* owned */
    struct nccl_buffer *buffers;      /* owned */
};

static struct nccl_group *group_of(const struct comm *c) { return c->group; }

enum status nccl_open(struct nccl **out, struct queue *queue, double timeout_s)
{
    struct nccl *n = heap(sizeof *n);
    *n = (struct nccl){.queue = queue};
    enum status st = watchdog_open(&n->watchdog, queue, timeout_s);
    if (st) free(n);
    TRY(st);
    *out = n;
    return STATUS_OK;
}

void nccl_close(struct nccl *n)
{
    if (!n) return;
    watchdog_close(n->watchdog);
    free(n);
}

/* --- transfers --- */

/* The communicator for a transfer, and the peer's rank in it; NULL: a message without a channel. */
static struct communicator *route(struct nccl_group *g, const struct transfer *t, int *peer)
{
    *peer = t->peer;
    bool is_message = t->kind == TRANSFER_send || t->kind == TRANSFER_receive;
    BUG_IF(!is_message && g->use == COMM_ONLY_MESSAGES);
    BUG_IF(!is_message && t->kind != TRANSFER_shift && g->use == COMM_ONLY_SHIFTS);
    if (!is_message) return &g->communicator;
    struct p2p_channel *c = p2p_channel_find(g->channels, t);
    *peer = t->kind == TRANSFER_send; /* the receiver is rank 1 of a channel, the sender rank 0 */
    return c ? &c->communicator : NULL;
}

static enum status track(struct watchdog *w, struct tracked_transfer *tracked)
{
    struct side_stream *stream = &tracked->communicator->stream;
    TRY(side_stream_wait_queue(stream));
    TRY(side_stream_record(stream, &tracked->begun));
    watchdog_track(w, tracked);
    return STATUS_OK;
}

static enum status issue(struct tracked_transfer *tracked, int peer)
{
    struct communicator *c = tracked->communicator;
    TRY(communicator_issue(c, &tracked->transfer, peer));
    TRY(side_stream_record(&c->stream, &tracked->done));
    if (tracked->transfer.begins_first) TRY(side_stream_join(&c->stream, &tracked->begun));
    return STATUS_OK;
}

/* On failure the record belongs to the watchdog. */
static enum status start_on_device(struct watchdog *w, struct tracked_transfer *tracked, int peer)
{
    const char *call = transfer_name(tracked->transfer.kind);
    enum status st = watchdog_enter(w, tracked->communicator, call);
    if (st) watchdog_recycle(w, tracked);
    TRY(st);
    if ((st = track(w, tracked)))
        watchdog_recycle(w, tracked);
    else
        watchdog_issued(w, tracked, !(st = issue(tracked, peer)));
    return watchdog_leave(w, st);
}

static enum status start_on_host(const struct nccl_group *g, struct tracked_transfer *tracked)
{
    tracked->transfer.comm = &g->host;
    enum status st = g->host.transport->start(&g->host, &tracked->transfer);
    if (st) watchdog_recycle(g->n->watchdog, tracked);
    return st;
}

static enum status start(const struct comm *c, struct transfer *t)
{
    struct nccl_group *g = group_of(c);
    struct watchdog *w = g->n->watchdog;
    struct tracked_transfer *tracked;
    int peer;
    if (c->size == 1) return g->host.transport->start(&g->host, t);
    if (!t->count) return STATUS_OK;
    TRY(watchdog_acquire(w, &tracked));
    tracked->transfer = *t;
    tracked->communicator = route(g, t, &peer);
    TRY(tracked->communicator ? start_on_device(w, tracked, peer) : start_on_host(g, tracked));
    t->in_flight = tracked;
    return STATUS_OK;
}

static enum status wait_on_device(struct watchdog *w, struct transfer *t,
                                  struct tracked_transfer *tracked)
{
    TRY(watchdog_check(w, STATUS_OK));
    enum status st =
        watchdog_check(w, side_stream_join(&tracked->communicator->stream, &tracked->done));
    if (!st && t->started_s > 0) { /* observed: the host waits too, so that it is accurate */
        st = side_stream_synchronize(&tracked->done);
        t->ended_s = clock_monotonic_s();
    }
    watchdog_waited(w, tracked);
    return st;
}

static enum status wait(struct transfer *t)
{
    struct nccl_group *g = group_of(t->comm);
    struct tracked_transfer *tracked = t->in_flight;
    if (!tracked) return STATUS_OK;
    if (tracked->communicator) {
        TRY(wait_on_device(g->n->watchdog, t, tracked));
        return STATUS_OK;
    }
    enum status st = g->host.transport->wait(&tracked->transfer);
    t->ended_s = tracked->transfer.ended_s;
    watchdog_recycle(g->n->watchdog, tracked);
    return st;
}

/* After a device failure host collectives fail too, since their values may describe incomplete
 * transfers. */
static enum status host_group(const struct comm *c, const struct comm **out)
{
    struct nccl_group *g = group_of(c);
    TRY(watchdog_check(g->n->watchdog, STATUS_OK));
    *out = &g->host;
    return STATUS_OK;
}

/* --- groups --- */

int nccl_shift_blocks(int size)
{
    enum { CHANNELS = 4, MAX_DIVISOR = 8 };
    int blocks = CHANNELS;
    for (int ranks = 1; ranks < size && blocks < MAX_DIVISOR * CHANNELS; ranks *= 2) blocks *= 2;
    return blocks;
}

static struct comm group_new(const struct comm *host, struct nccl *n, const char *name,
                             enum comm_use use);
static enum status open_communicator(struct nccl_group *g);

static enum status split(const struct comm *c, int color, int key, struct comm *out)
{
    struct nccl_group *g = group_of(c), *part;
    struct comm host;
    TRY(comm_split(&g->host, color, key, &host));
    *out = group_new(&host, g->n, g->name, COMM_ALL);
    part = group_of(out);
    part->communicator.is_on_queue = true;
    enum status st = comm_agree(&g->host, open_communicator(part));
    if (st) comm_release(out);
    return st;
}

/* Adds an open communicator to those that exist, or removes it (by -1). */
static void count_communicator(struct nccl *n, const struct communicator *c, int by)
{
    n->num_communicators += by, n->num_side_streams += c->is_on_queue ? 0 : by;
}

/* After a failure the abort of the communicator does it.  The watchdog does not abort meanwhile. */
static void deregister(struct nccl_group *g, struct nccl_buffer **at)
{
    struct nccl_buffer *buffer = *at;
    struct failure last = {0};
    *at = buffer->next;
    status_save(&last, STATUS_COMM); /* whatever its status: keeps the caller's message */
    if (!watchdog_enter(g->n->watchdog, &g->communicator, "deregistering memory")) {
        communicator_deregister(&g->communicator, buffer->handle);
        (void)watchdog_leave(g->n->watchdog, STATUS_OK);
    }
    status_restore(&last);
    free(buffer);
}

static enum status register_memory(const struct comm *c, void *at, size_t bytes)
{
    struct nccl_group *g = group_of(c);
    void *handle;
    struct nccl_buffer **found = &g->buffers;
    while (*found && (*found)->at != at) found = &(*found)->next;
    if (!bytes) watchdog_settle(g->n->watchdog);
    if (*found) deregister(g, found);
    if (!bytes || c->size == 1) return STATUS_OK;
    TRY(watchdog_enter(g->n->watchdog, &g->communicator, "registering memory"));
    enum status st = communicator_register(&g->communicator, at, bytes, &handle);
    if (watchdog_leave(g->n->watchdog, st)) {
        log_line(LOG_WARN, "%s; transfers will copy through NCCL's buffers", status_message());
        return STATUS_OK;
    }
    struct nccl_buffer *buffer = heap(sizeof *buffer);
    *buffer = (struct nccl_buffer){at, handle, g->buffers};
    g->buffers = buffer;
    return STATUS_OK;
}

static void close_communicators(struct nccl *n, struct communicator **all, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        watchdog_remove(n->watchdog, all[i]);
        count_communicator(n, all[i], -1);
    }
    if (n->leaves)
        for (size_t i = 0; i < count; i++) communicator_leave(all[i]);
    else
        n->leaves = !communicator_close_all(all, count);
}

/* Closes its own communicator and those of its channels together: ranks list channels in different
 * orders. */
static void release(struct comm *c)
{
    struct nccl_group *g = group_of(c);
    size_t num_channels = 0, count = 0;
    while (g->buffers) deregister(g, &g->buffers);
    for (struct p2p_channel *i = g->channels; i; i = i->next) num_channels++;
    struct communicator **open = heap((num_channels + 1) * sizeof(struct communicator *));
    for (struct p2p_channel *i = g->channels; i; i = i->next) open[count++] = &i->communicator;
    if (g->communicator.handle || g->communicator.stream.handle) open[count++] = &g->communicator;
    close_communicators(g->n, open, count);
    for (struct p2p_channel *i = g->channels, *next; i; i = next) {
        next = i->next;
        free(i);
    }
    g->n->num_channels -= (int)num_channels;
    free(open);
    comm_release(&g->host);
    free(g);
}

int nccl_num_streams(const struct nccl *n, int each)
{
    enum { OF_QUEUE = STREAM_COUNT + 1 }; /* and the default stream, which zeroes allocations */
    return OF_QUEUE + n->num_side_streams + each * n->num_communicators;
}

/* Whether all streams will have hardware queues of their own when these are open, too. */
static enum status check_queues(const struct nccl *n, int channels, int more_streams)
{
    const char *set = getenv(nccl_queues_variable);
    long queues = set ? strtol(set, NULL, 10) : nccl_max_queues;
    int streams = nccl_num_streams(n, nccl_library_streams) + more_streams;
    if (queues > nccl_max_queues) queues = nccl_max_queues;
    if (!(n->num_channels + channels) || streams <= queues) return STATUS_OK;
    if (queues < nccl_max_queues)
        FAIL(CONFIG,
             "%s=%s: this rank of a pipeline uses %d streams, and could hang where two share a "
             "hardware queue: unset it, or set it to %d",
             nccl_queues_variable, set, streams, nccl_max_queues);
    FAIL(UNSUPPORTED,
         "this rank of a pipeline uses %d streams, more than the %d hardware queues of a GPU, and "
         "could hang where two share one: set device.comm = \"staged\"",
         streams, nccl_max_queues);
}

/* Rank 0 speaks for all pipelines, which are alike. */
static enum status warn_of_queues(const struct nccl_group *g)
{
    struct text warning = {0};
    if (!nccl_gpu_queues) return STATUS_OK;
    int64_t streams = nccl_num_streams(g->n, RCCL_STREAMS);
    TRY(comm_all_reduce_int64(&g->host, REDUCE_MAX, &streams, 1));
    nccl_warn_of_amd_queues((int)streams, &warning);
    if (warning.len && log_rank() <= 0) log_line(LOG_WARN, "%s", warning.data);
    text_release(&warning);
    return STATUS_OK;
}

static enum status declare_p2p(const struct comm *c, const struct p2p_message *sends, int num_sends,
                               const struct p2p_message *receives, int num_receives)
{
    struct nccl_group *g = group_of(c);
    struct p2p_channel *old = g->channels;
    struct p2p_messages messages = {sends, receives, num_sends, num_receives};
    int missing = p2p_channel_count_missing(old, &messages);
    TRY(comm_agree(&g->host, check_queues(g->n, missing, missing * (1 + nccl_library_streams))));
    TRY(watchdog_enter(g->n->watchdog, &g->communicator, "opening channels"));
    enum status st = p2p_channel_open(&g->channels, &g->host, g->name, g->n->queue, &messages);
    st = watchdog_leave(g->n->watchdog, st);
    for (struct p2p_channel *i = g->channels; i != old; i = i->next) {
        watchdog_add(g->n->watchdog, &i->communicator);
        count_communicator(g->n, &i->communicator, 1);
        g->n->num_channels++;
    }
    TRY(st);
    TRY(warn_of_queues(g));
    return STATUS_OK;
}

static enum status open_watched(struct nccl_group *g, struct communicator_opening *o)
{
    TRY(watchdog_enter(g->n->watchdog, &g->communicator, "opening"));
    return watchdog_leave(g->n->watchdog, communicator_open(o));
}

/* Bootstrap: rank 0's ncclUniqueId is broadcast over the wrapped group (MPI), then all ranks create
 * the communicator from it. */
static enum status open_communicator(struct nccl_group *g)
{
    const struct comm *c = &g->host;
    bool shifts = g->use == COMM_ONLY_SHIFTS;
    struct communicator_init init = {.communicator = &g->communicator,
                                     .first = shifts ? TRANSFER_shift : TRANSFER_broadcast};
    struct communicator_opening opening = {.inits = &init, .count = 1, .queue = g->n->queue};
    if (c->size == 1 || g->use == COMM_ONLY_MESSAGES) return STATUS_OK;
    enum status st = check_queues(g->n, 0, nccl_library_streams + !g->communicator.is_on_queue);
    if (!st && c->rank == 0) st = communicator_id(init.id);
    if (!st) st = communicator_prepare(&opening);
    TRY_OUT(comm_agree(c, st));
    TRY_OUT(comm_broadcast_bytes(c, 0, init.id, sizeof init.id));
    TRY_OUT(comm_agree(c, open_watched(g, &opening)));
    watchdog_add(g->n->watchdog, &g->communicator);
    count_communicator(g->n, &g->communicator, 1);
out:
    if (st) communicator_cancel(&opening); /* this rank may have opened its own */
    return st;
}

static struct comm group_new(const struct comm *host, struct nccl *n, const char *name,
                             enum comm_use use)
{
    static const struct transport nccl = {.name = "nccl",
                                          .own_order = true,
                                          .split = split,
                                          .release = release,
                                          .start = start,
                                          .wait = wait,
                                          .host = host_group,
                                          .declare_p2p = declare_p2p,
                                          .register_memory = register_memory};
    struct nccl_group *g = heap(sizeof *g);
    *g = (struct nccl_group){.host = *host, .n = n, .name = name, .use = use};
    g->communicator = (struct communicator){.name = name, .rank = host->rank, .size = host->size};
    if (use == COMM_ONLY_SHIFTS) g->communicator.max_blocks = nccl_shift_blocks(host->size);
    return (struct comm){host->rank, host->size, &nccl, g, host->counts};
}

enum status nccl_wrap(struct comm *c, struct nccl *n, const char *name, enum comm_use use)
{
    struct comm wrapped = group_new(c, n, name, use);
    struct nccl_group *g = group_of(&wrapped);
    enum status st = open_communicator(g);
    if (st) free(g);
    TRY(st);
    TRY(staged_wrap(&g->host, n->queue));
    *c = wrapped;
    return STATUS_OK;
}

/* --- devices --- */

/* Which device of which host a rank has. */
struct rank_device {
    char host[256], device[SIDE_STREAM_DEVICE_ID_BYTES];
};

static bool is_same_device(const struct rank_device *a, const struct rank_device *b)
{
    return !strcmp(a->host, b->host) && !strcmp(a->device, b->device);
}

enum status nccl_same_device(const struct comm *world, struct queue *queue, struct nccl_pair *out)
{
    struct rank_device *all = heap((size_t)world->size * sizeof *all), *mine = all + world->rank;
    enum status st = STATUS_OK;
    *out = (struct nccl_pair){-1, -1};
    TRY_OUT(comm_agree(world, side_stream_device_id(queue, mine->device)));
    host_name(mine->host, sizeof mine->host);
    TRY_OUT(comm_all_gather_bytes(world, all, sizeof *all));
    for (int i = 0; i < world->size && out->first < 0; i++)
        for (int j = i + 1; j < world->size && out->first < 0; j++)
            if (is_same_device(&all[i], &all[j])) *out = (struct nccl_pair){i, j};
out:
    free(all);
    return st;
}
