// SPDX-License-Identifier: Apache-2.0
#include "comm/shm/shm.h"

#include "base/activity.h"
#include "base/checksum.h"
#include "base/text.h"
#include "comm/operation.h"
#include "comm/shm/endpoint.h"
#include "comm/shm/launcher.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEARTBEAT_GROUP, WORLD_GROUP };
enum { MAX_CHUNK = 1 << 16 }; /* elements: what others send stays in L2 until it is summed */

struct shm_link {
    struct heartbeat_link link; /* first */
    struct segment *segment;
    struct endpoint *endpoint;
    struct endpoint_batch sends[HEARTBEAT_CHANNELS], receives[HEARTBEAT_CHANNELS];
};

struct shm_engine {
    struct operation_engine base; /* first */
    struct progress_job pump;     /* moves the messages of all operations */
    struct segment *segment;
    struct endpoint *endpoint;
    struct shm_link link;
};

struct shm_group {
    struct operation_group base; /* first */
    uint64_t id, num_splits;
    int *ranks; /* of the segment, by rank of the group */
};

struct shm_operation {
    struct operation base; /* first */
    struct endpoint_batch batch;
};

/* --- messages --- */

static struct endpoint *endpoint_of(const struct shm_group *g)
{
    return ((struct shm_engine *)g->base.engine)->endpoint;
}

static enum status post(struct operation *op, struct message m)
{
    const struct shm_group *g = op->comm.group;
    struct endpoint_batch *batch = &((struct shm_operation *)op)->batch;
    struct endpoint_message message = {g->ranks[m.peer], g->id, m.tag, m.bytes};
    if (!op->num_posted++) *batch = (struct endpoint_batch){0};
    if (m.is_send)
        endpoint_send(endpoint_of(g), message, m.x, batch);
    else
        endpoint_receive(endpoint_of(g), message, m.x, batch);
    return STATUS_OK;
}

static enum status test(struct operation *op, bool *all)
{
    const struct endpoint_batch *batch = &((struct shm_operation *)op)->batch;
    bool is_receive = op->t && op->t->kind == TRANSFER_receive; /* it compares the length itself */
    *all = !batch->num_pending;
    if (*all && batch->is_mismatched && !is_receive)
        FAIL(COMM,
             "%s on rank %d in a group of %d: other ranks sent %zu bytes, not as many as this "
             "rank expects",
             op->what, op->comm.rank, op->comm.size, batch->received);
    return STATUS_OK;
}

static enum status count_received(struct operation *op, size_t *bytes)
{
    *bytes = ((struct shm_operation *)op)->batch.received;
    return STATUS_OK;
}

static const struct message_library messages = {.operation_bytes = sizeof(struct shm_operation),
                                                .max_chunk = MAX_CHUNK,
                                                .post = post,
                                                .test = test,
                                                .count_received = count_received};

static enum status pump_step(struct progress_job *job, bool *is_over)
{
    struct shm_engine *e =
        (struct shm_engine *)(void *)((char *)job - offsetof(struct shm_engine, pump));
    endpoint_advance(e->endpoint);
    *is_over = false;
    return STATUS_OK;
}

/* --- heartbeats --- */

static bool link_send(struct heartbeat_link *link, int channel, const void *x, size_t bytes)
{
    struct shm_link *l = (struct shm_link *)link;
    int to = (link->rank + (1 << channel)) % link->size;
    endpoint_send(l->endpoint, (struct endpoint_message){to, HEARTBEAT_GROUP, channel, bytes}, x,
                  &l->sends[channel]);
    return true;
}

static bool link_receive(struct heartbeat_link *link, int channel, void *x, size_t bytes)
{
    struct shm_link *l = (struct shm_link *)link;
    int from = (link->rank + link->size - (1 << channel)) % link->size;
    endpoint_receive(l->endpoint, (struct endpoint_message){from, HEARTBEAT_GROUP, channel, bytes},
                     x, &l->receives[channel]);
    return true;
}

static bool link_test_send(struct heartbeat_link *link, int channel, bool *is_done)
{
    *is_done = !((struct shm_link *)link)->sends[channel].num_pending;
    return true;
}

static bool link_test_receive(struct heartbeat_link *link, int channel, bool *is_done)
{
    *is_done = !((struct shm_link *)link)->receives[channel].num_pending;
    return true;
}

static enum status link_gather(struct heartbeat_link *link, void *x, size_t bytes)
{
    segment_gather(((struct shm_link *)link)->segment, link->rank, x, bytes);
    return STATUS_OK;
}

static struct shm_link link_of(struct segment *segment, struct endpoint *endpoint, int rank)
{
    return (struct shm_link){.link = {.rank = rank,
                                      .size = segment_size(segment),
                                      .send = link_send,
                                      .receive = link_receive,
                                      .test_send = link_test_send,
                                      .test_receive = link_test_receive,
                                      .gather = link_gather,
                                      .end = shm_abort},
                             .segment = segment,
                             .endpoint = endpoint};
}

/* --- groups --- */

static struct comm group_new(struct shm_engine *e, uint64_t id, int rank, int size);

static enum status split(const struct comm *c, int color, int key, struct comm *out)
{
    struct shm_group *g = c->group, *made;
    const int mine[2] = {color, key};
    const uint64_t path[] = {g->num_splits++, (uint64_t)color};
    const int *of;
    const void *all;
    int rank = 0, size = 0;
    TRY(operation_gather(c, mine, sizeof mine, &all));
    of = all;
    for (int r = 0; r < c->size; r++) size += of[2 * r] == color;
    *out = group_new((struct shm_engine *)g->base.engine, checksum_hash64(g->id, path, sizeof path),
                     0, size);
    made = out->group;
    for (int r = 0; r < c->size; r++) { /* by key, then by rank */
        int at = 0;
        if (of[2 * r] != color) continue;
        for (int i = 0; i < c->size; i++)
            at += of[2 * i] == color &&
                  (of[2 * i + 1] < of[2 * r + 1] || (of[2 * i + 1] == of[2 * r + 1] && i < r));
        made->ranks[at] = g->ranks[r];
        if (r == c->rank) rank = at;
    }
    out->rank = rank;
    return STATUS_OK;
}

static void release(struct comm *c)
{
    struct shm_group *g = c->group;
    free(g->base.gathered);
    free(g->ranks);
    free(g);
}

static struct comm group_new(struct shm_engine *e, uint64_t id, int rank, int size)
{
    static const struct transport shm = {.name = "shm",
                                         .split = split,
                                         .release = release,
                                         .start = operation_start,
                                         .wait = operation_wait,
                                         .gather = operation_gather};
    struct shm_group *g = heap(sizeof *g);
    *g = (struct shm_group){.base = {.engine = &e->base}, .id = id};
    g->ranks = heap((size_t)size * sizeof *g->ranks);
    return (struct comm){rank, size, &shm, g, &g->base.counts};
}

/* --- joining and leaving --- */

/* The number that a variable of the launcher holds; -1: it does not. */
static int number_of(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    long n = text ? strtol(text, &end, 10) : -1;
    return text && *text && !*end && n >= 0 && n < INT_MAX ? (int)n : -1;
}

static void engine_free(struct shm_engine *e)
{
    operation_engine_release(&e->base);
    endpoint_free(e->endpoint);
    segment_unmap(e->segment);
    free(e);
}

static enum status open_engine(struct shm_engine *e, int fd, int rank, int size)
{
    TRY(segment_map(fd, size, &e->segment));
    TRY(operation_engine_open(&e->base, &messages, segment_bell(e->segment, rank)));
    e->endpoint = endpoint_make(e->segment, rank);
    e->link = link_of(e->segment, e->endpoint, rank);
    TRY(heartbeat_make(&e->link.link, &e->base.heartbeat));
    e->pump = (struct progress_job){.step = pump_step, .is_background = true};
    progress_start(e->base.progress, &e->pump); /* before all jobs that use its messages */
    progress_start(e->base.progress, heartbeat_job(e->base.heartbeat));
    return STATUS_OK;
}

enum status shm_join(struct comm *world)
{
    int rank = number_of(LAUNCHER_RANK), size = number_of(LAUNCHER_RANKS);
    int fd = number_of(LAUNCHER_SEGMENT);
    *world = (struct comm){0};
    if (rank < 0 || size <= rank || size > LAUNCHER_MAX_RANKS || fd < 0)
        FAIL(COMM,
             "%s=%d, %s=%d: this process is not a rank that `llamero train --ranks` started; unset "
             "these variables",
             LAUNCHER_RANK, rank, LAUNCHER_RANKS, size);
    struct shm_engine *e = heap(sizeof *e);
    enum status st = open_engine(e, fd, rank, size);
    if (st) engine_free(e);
    TRY(st);
    *world = group_new(e, WORLD_GROUP, rank, size);
    for (int r = 0; r < size; r++) ((struct shm_group *)world->group)->ranks[r] = r;
    return STATUS_OK;
}

void shm_close(struct comm *world, enum status how)
{
    if (!world->group) return;
    struct shm_engine *e = (struct shm_engine *)((struct shm_group *)world->group)->base.engine;
    operation_engine_leave(&e->base, how);
    operation_engine_close(&e->base);
    if (how == STATUS_OK || how == STATUS_REQUEUE) {
        release(world);
        engine_free(e);
        close(number_of(LAUNCHER_SEGMENT));
        unsetenv(LAUNCHER_SEGMENT);
    }
    *world = (struct comm){0};
}

void shm_abort(int exit_code)
{
    struct segment *s;
    int size = number_of(LAUNCHER_RANKS), fd = number_of(LAUNCHER_SEGMENT);
    activity_set_ending();
    if (fd < 0 || size < 1 || size > LAUNCHER_MAX_RANKS || segment_map(fd, size, &s)) return;
    segment_set_exit_code(s, exit_code);
    activity_exit(exit_code);
}
