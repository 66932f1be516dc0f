// SPDX-License-Identifier: Apache-2.0
#include "comm/operation.h"

#include "base/clock.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* Tags above those of send and receive keep the messages of different collectives apart. */
enum { FIRST_TAG = 1 << 15, NUM_TAGS = 1 << 15 };

static struct operation_engine *engine_of(const struct operation *op)
{
    return ((const struct operation_group *)op->comm.group)->engine;
}

static enum status step(struct progress_job *job, bool *is_over)
{
    struct operation *op = (struct operation *)job;
    const struct message_library *library = engine_of(op)->library;
    while (!*is_over) { /* a stage may have no messages, or they are complete at once */
        bool all = true;
        if (op->num_posted) TRY(library->test(op, &all));
        if (!all) return STATUS_OK;
        op->num_posted = 0;
        TRY(op->next(op, is_over));
    }
    if (*is_over && op->t && op->t->started_s > 0) op->t->ended_s = clock_monotonic_s();
    return STATUS_OK;
}

static enum status post(struct operation *op, struct message m)
{
    return engine_of(op)->library->post(op, m);
}

/* The last stage, after one that only posts messages. */
static enum status finish_next(struct operation *op, bool *is_over)
{
    (void)op;
    *is_over = true;
    return STATUS_OK;
}

/* --- messages --- */

static enum status send_next(struct operation *op, bool *is_over)
{
    const struct transfer *t = op->t;
    size_t bytes = t->count * transfer_element_bytes(t);
    *is_over = op->stage++ > 0;
    if (!*is_over) TRY(post(op, (struct message){true, t->peer, t->tag, t->x, bytes}));
    return STATUS_OK;
}

static enum status receive_next(struct operation *op, bool *is_over)
{
    const struct transfer *t = op->t;
    size_t bytes = t->count * transfer_element_bytes(t), received = 0;
    if (!op->stage++) {
        TRY(post(op, (struct message){false, t->peer, t->tag, t->x, bytes}));
        return STATUS_OK;
    }
    *is_over = true;
    TRY(engine_of(op)->library->count_received(op, &received));
    if (received != bytes)
        FAIL(COMM, "rank %d in a group of %d sent %zu bytes with tag %d; rank %d expects %zu",
             t->peer, op->comm.size, received, t->tag, op->comm.rank, bytes);
    return STATUS_OK;
}

/* The root sends to every rank. */
static enum status broadcast_next(struct operation *op, bool *is_over)
{
    const struct transfer *t = op->t;
    size_t bytes = t->count * transfer_element_bytes(t);
    struct message m = {op->comm.rank == t->peer, t->peer, op->tag, t->x, bytes};
    (void)is_over;
    op->next = finish_next;
    if (!bytes) return STATUS_OK;
    if (!m.is_send) return post(op, m);
    for (int i = 1; i < op->comm.size; i++) {
        m.peer = (op->comm.rank + i) % op->comm.size;
        TRY(post(op, m));
    }
    return STATUS_OK;
}

/* Every rank sends its part to every other. */
static enum status all_gather_next(struct operation *op, bool *is_over)
{
    const struct transfer *t = op->t;
    size_t bytes = t->count * transfer_element_bytes(t);
    int rank = op->comm.rank, size = op->comm.size;
    char *x = t->x;
    (void)is_over;
    op->next = finish_next;
    for (int i = 1; i < size && bytes; i++) { /* each rank begins with a different peer */
        int from = (rank + size - i) % size, to = (rank + i) % size;
        char *theirs = x + (size_t)from * bytes, *mine = x + (size_t)rank * bytes;
        TRY(post(op, (struct message){false, from, op->tag, theirs, bytes}));
        TRY(post(op, (struct message){true, to, op->tag, mine, bytes}));
    }
    return STATUS_OK;
}

/* Every rank sends to the next. */
static enum status shift_next(struct operation *op, bool *is_over)
{
    const struct transfer *t = op->t;
    size_t bytes = t->count * transfer_element_bytes(t);
    int rank = op->comm.rank, size = op->comm.size;
    (void)is_over;
    op->next = finish_next;
    if (!bytes) return STATUS_OK;
    TRY(post(op, (struct message){false, (rank + size - 1) % size, op->tag, t->own, bytes}));
    TRY(post(op, (struct message){true, (rank + 1) % size, op->tag, t->x, bytes}));
    return STATUS_OK;
}

/* Every rank sends to every other what it has for it. */
static enum status all_to_all_next(struct operation *op, bool *is_over)
{
    const struct transfer *t = op->t;
    size_t each = transfer_element_bytes(t);
    int rank = op->comm.rank, size = op->comm.size;
    char *x = t->x, *own = t->own;
    (void)is_over;
    op->next = finish_next;
    for (int i = 1; i < size; i++) { /* each rank begins with a different peer */
        int from = (rank + size - i) % size, to = (rank + i) % size;
        struct message in = {false, from, op->tag, own, t->receives[from] * each};
        struct message out = {true, to, op->tag, x, t->sends[to] * each};
        in.x += transfer_part(t->receives, from) * each,
            out.x += transfer_part(t->sends, to) * each;
        if (in.bytes) TRY(post(op, in));
        if (out.bytes) TRY(post(op, out));
    }
    if (!t->sends[rank]) return STATUS_OK;
    memcpy(own + transfer_part(t->receives, rank) * each, x + transfer_part(t->sends, rank) * each,
           t->sends[rank] * each);
    return STATUS_OK;
}

/* --- sums --- */

/* The elements of x that rank r sums, and the first of them. */
static size_t shard_of(const struct operation *op, int r, size_t *begin)
{
    const struct transfer *t = op->t;
    if (t->kind == TRANSFER_all_reduce) return transfer_shard(t->count, op->comm.size, r, begin);
    *begin = (size_t)r * t->count;
    return t->count;
}

/* Chunk `stage` of the elements that rank r sums, and the first of them in x. */
static size_t chunk_of(const struct operation *op, int r, size_t stage, size_t *begin)
{
    size_t count = shard_of(op, r, begin), chunk = transfer_chunk(count, op->comm.size);
    size_t most = engine_of(op)->library->max_chunk;
    if (most && chunk > most) chunk = most;
    size_t at = stage * chunk < count ? stage * chunk : count;
    *begin += at;
    return count - at < chunk ? count - at : chunk;
}

/* Receives every rank's part of this rank's chunk into `work`, and sends the other ranks theirs. */
static enum status post_chunk(struct operation *op)
{
    const struct transfer *t = op->t;
    int rank = op->comm.rank, size = op->comm.size;
    size_t each = dtype_bytes(t->dtype), begin, mine = chunk_of(op, rank, op->stage, &begin);
    for (int i = 1; i < size; i++) { /* each rank begins with a different peer */
        int from = (rank + size - i) % size, to = (rank + i) % size;
        size_t theirs = chunk_of(op, to, op->stage, &begin);
        struct message in = {false, from, op->tag, t->work, mine * each};
        struct message out = {true, to, op->tag, t->x, theirs * each};
        in.x += (size_t)from * mine * each, out.x += begin * each;
        if (mine) TRY(post(op, in));
        if (theirs) TRY(post(op, out));
    }
    op->stage++;
    return STATUS_OK;
}

static void sum_chunk(struct operation *op)
{
    const struct transfer *t = op->t;
    size_t each = dtype_bytes(t->dtype), begin, first;
    size_t n = chunk_of(op, op->comm.rank, op->stage - 1, &begin);
    shard_of(op, op->comm.rank, &first);
    char *own = t->kind == TRANSFER_all_reduce ? (char *)t->x + first * each : t->own;
    if (op->max_parts < op->comm.size) {
        op->max_parts = op->comm.size;
        op->parts = heap_grow(op->parts, (size_t)op->max_parts, sizeof *op->parts);
    }
    for (int r = 0; r < op->comm.size; r++) op->parts[r] = (char *)t->work + (size_t)r * n * each;
    op->parts[op->comm.rank] = (char *)t->x + begin * each;
    comm_sum(t->dtype, op->parts, op->comm.size, n, own + (begin - first) * each);
}

/* Ends a stage; returns whether another follows.  No rank has more chunks than rank 0. */
static bool finish_chunk(struct operation *op)
{
    size_t begin;
    if (op->stage > 0) sum_chunk(op);
    return chunk_of(op, 0, op->stage, &begin) > 0;
}

static enum status reduce_scatter_next(struct operation *op, bool *is_over)
{
    *is_over = !finish_chunk(op);
    if (!*is_over) TRY(post_chunk(op));
    return STATUS_OK;
}

static enum status all_reduce_next(struct operation *op, bool *is_over)
{
    const struct transfer *t = op->t;
    int rank = op->comm.rank, size = op->comm.size;
    size_t each = dtype_bytes(t->dtype), begin, begin_mine;
    (void)is_over;
    if (finish_chunk(op)) {
        TRY(post_chunk(op));
        return STATUS_OK;
    }
    /* Then all ranks exchange their sums.  Shards differ in size, and the last may be empty. */
    size_t mine = shard_of(op, rank, &begin_mine);
    for (int i = 1; i < size; i++) {
        int from = (rank + size - i) % size, to = (rank + i) % size;
        size_t theirs = shard_of(op, from, &begin);
        struct message in = {false, from, op->tag, t->x, theirs * each};
        struct message out = {true, to, op->tag, t->x, mine * each};
        in.x += begin * each, out.x += begin_mine * each;
        if (theirs) TRY(post(op, in));
        if (mine) TRY(post(op, out));
    }
    op->next = finish_next;
    return STATUS_OK;
}

/* --- operations --- */

struct operation *operation_acquire(const struct comm *c, const char *what, operation_stage next)
{
    struct operation_engine *e = ((const struct operation_group *)c->group)->engine;
    pthread_mutex_lock(&e->lock);
    struct operation *op = e->spare;
    if (op) e->spare = op->spare;
    pthread_mutex_unlock(&e->lock);
    if (!op) op = heap(e->library->operation_bytes);
    op->job.step = step;
    op->next = next, op->what = what, op->comm = *c, op->t = NULL;
    op->stage = 0, op->num_posted = 0;
    return op;
}

void operation_recycle(struct operation *op)
{
    struct operation_engine *e = engine_of(op);
    pthread_mutex_lock(&e->lock);
    op->spare = e->spare, e->spare = op;
    pthread_mutex_unlock(&e->lock);
}

const struct failure *operation_run(struct operation *op)
{
    struct progress_thread *p = engine_of(op)->progress;
    progress_start(p, &op->job);
    return progress_wait(p, &op->job);
}

static operation_stage find_first_stage(const struct operation_group *g, const struct transfer *t)
{
    static const operation_stage next[TRANSFER_COUNT] = {
#define X(name, text) [TRANSFER_##name] = name##_next,
        TRANSFER_LIST(X)
#undef X
    };
    const struct message_library *library = g->engine->library;
    if (t->kind == TRANSFER_broadcast && library->broadcast) return library->broadcast;
    if (t->kind == TRANSFER_all_gather && library->all_gather) return library->all_gather;
    return next[t->kind];
}

enum status operation_start(const struct comm *c, struct transfer *t)
{
    struct operation_group *g = c->group;
    t->comm = c;
    if (c->size == 1) {
        transfer_copy_to_own(t);
        t->in_flight = NULL;
        return STATUS_OK;
    }
    struct operation *op = operation_acquire(c, transfer_name(t->kind), find_first_stage(g, t));
    op->t = t;
    if (t->kind != TRANSFER_send && t->kind != TRANSFER_receive)
        op->tag = FIRST_TAG + (int)(g->num_collectives++ % NUM_TAGS);
    t->in_flight = op;
    progress_start(g->engine->progress, &op->job);
    return STATUS_OK;
}

enum status operation_wait(struct transfer *t)
{
    struct operation *op = t->in_flight;
    if (!op) return STATUS_OK;
    const struct failure *f = progress_wait(engine_of(op)->progress, &op->job);
    operation_recycle(op);
    return f ? status_restore(f) : STATUS_OK;
}

enum status operation_gather(const struct comm *c, const void *mine, size_t bytes, const void **all)
{
    struct operation_group *g = c->group;
    size_t all_bytes = (size_t)c->size * bytes;
    if (all_bytes >= g->gathered_bytes) {
        g->gathered_bytes = all_bytes + 1;
        g->gathered = heap_grow(g->gathered, g->gathered_bytes, 1);
    }
    if (bytes) memcpy(g->gathered + (size_t)c->rank * bytes, mine, bytes);
    struct transfer t = {TRANSFER_all_gather, .count = bytes, .x = g->gathered, .is_bytes = true};
    TRY(operation_start(c, &t));
    TRY(operation_wait(&t));
    *all = g->gathered;
    return STATUS_OK;
}

/* --- the engine --- */

enum status operation_engine_open(struct operation_engine *e, const struct message_library *library,
                                  struct progress_bell *bell)
{
    *e = (struct operation_engine){.library = library};
    pthread_mutex_init(&e->lock, NULL);
    TRY(progress_open(bell, &e->progress));
    return STATUS_OK;
}

void operation_engine_leave(struct operation_engine *e, enum status how)
{
    if (how == STATUS_OK || how == STATUS_REQUEUE)
        heartbeat_leave(e->heartbeat);
    else
        heartbeat_end(e->heartbeat, status_exit_code(how));
    progress_wait(e->progress, heartbeat_job(e->heartbeat));
}

void operation_engine_close(struct operation_engine *e)
{
    progress_close(e->progress);
    e->progress = NULL;
}

void operation_engine_release(struct operation_engine *e)
{
    operation_engine_close(e);
    heartbeat_free(e->heartbeat);
    for (struct operation *op = e->spare, *next; op; op = next) {
        next = op->spare;
        if (e->library->release_operation) e->library->release_operation(op);
        free(op->parts), free(op);
    }
    pthread_mutex_destroy(&e->lock);
}
