// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/communicator.h"

#include "base/text.h"
#include "base/thread.h"
#include "comm/nccl/library.h"
#include "tensor/device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char communicator_library[] = NCCL_TITLE;

_Static_assert(COMMUNICATOR_ID_BYTES == NCCL_UNIQUE_ID_BYTES,
               "an id is copied to and from ncclUniqueId");

enum { FIRST_FLOATS = 2 }; /* x and own of a first transfer */

/* Atomic: the watchdog thread may abort the communicator while another thread calls it. */
static ncclComm_t handle_of(const struct communicator *c)
{
    return c ? __atomic_load_n(&c->handle, __ATOMIC_ACQUIRE) : NULL;
}

static ncclComm_t take_handle(struct communicator *c)
{
    return __atomic_exchange_n(&c->handle, NULL, __ATOMIC_ACQ_REL);
}

static enum status check(const struct communicator *c, const char *what, ncclResult_t result)
{
    if (result == ncclSuccess) return STATUS_OK;
    const char *error = ncclGetErrorString(result), *detail = ncclGetLastError(handle_of(c));
    if (!detail) detail = "";
    if (!c)
        FAIL(COMM, "%s: %s error: %s%s%s", what, communicator_library, error, *detail ? ": " : "",
             detail);
    FAIL(COMM, "%s on rank %d of %d in group %s: %s error: %s%s%s", what, c->rank, c->size, c->name,
         communicator_library, error, *detail ? ": " : "", detail);
}

enum status communicator_id(unsigned char id[COMMUNICATOR_ID_BYTES])
{
    ncclUniqueId unique;
    TRY(check(NULL, "creating an id", ncclGetUniqueId(&unique)));
    memcpy(id, unique.internal, COMMUNICATOR_ID_BYTES);
    return STATUS_OK;
}

static enum status init(struct communicator *c, const unsigned char id[COMMUNICATOR_ID_BYTES])
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    memcpy(unique.internal, id, COMMUNICATOR_ID_BYTES);
    if (c->max_blocks) config.maxCTAs = c->max_blocks, config.minCTAs = 1;
    ncclResult_t result =
        ncclCommInitRankConfig((ncclComm_t *)&c->handle, c->size, unique, c->rank, &config);
    TRY(check(c, "opening", result));
    return STATUS_OK;
}

static enum status open_stream(struct communicator *c, struct queue *queue)
{
    if (!c->is_on_queue) return side_stream_open(&c->stream, queue);
    side_stream_use_queue(&c->stream, queue);
    return STATUS_OK;
}

static enum status init_all(const struct communicator_opening *o)
{
    enum status st = STATUS_OK;
    TRY(communicator_group_start());
    for (int i = 0; i < o->count && !st; i++) st = init(o->inits[i].communicator, o->inits[i].id);
    ncclResult_t end = ncclGroupEnd();
    TRY(st);
    TRY(check(o->count ? o->inits[0].communicator : NULL, "opening", end));
    return STATUS_OK;
}

/* Makes the first transfer of every communicator, at once. */
static enum status start_first(const struct communicator_opening *o)
{
    float *x = (float *)(void *)o->memory.base;
    enum status st = STATUS_OK;
    TRY(communicator_group_start());
    for (int i = 0; i < o->count && !st; i++, x += FIRST_FLOATS) {
        struct communicator *c = o->inits[i].communicator;
        struct transfer first = {.kind = o->inits[i].first, .count = 1, .x = x, .own = x + 1};
        st = side_stream_wait_queue(&c->stream);
        if (!st) st = communicator_issue(c, &first, o->inits[i].peer);
    }
    TRY(communicator_group_end(st));
    return STATUS_OK;
}

static enum status await_first(struct communicator_opening *o)
{
    for (int i = 0; i < o->count; i++) {
        struct communicator *c = o->inits[i].communicator;
        TRY(side_stream_record(&c->stream, &o->done));
        TRY(side_stream_synchronize(&o->done));
        TRY(communicator_async_error(c));
    }
    return STATUS_OK;
}

/* Memory of a transfer that is still in flight remains allocated: freeing it would wait. */
static void abort_inits(struct communicator_opening *o)
{
    struct communicator **all = heap((size_t)o->count * sizeof(struct communicator *) + 1);
    for (int i = 0; i < o->count; i++) all[i] = o->inits[i].communicator;
    if (!communicator_abort_all(all, (size_t)o->count)) o->memory = (struct arena){0};
    free(all);
}

/* On failure aborts, which may end the wait of other ranks. */
static enum status connect_all(struct communicator_opening *o)
{
    enum status st = start_first(o);
    if (!st) st = await_first(o);
    if (!st) return STATUS_OK;
    abort_inits(o);
    bool lacks_memory = strstr(status_message(), "out of memory") ||
                        strstr(status_message(), "Failed to CUDA malloc"); /* NCCL's last warning */
    if (!lacks_memory) return status_prefix(st, "connecting ranks");
    return status_prefix(st,
                         "connecting ranks, for which %s needs some hundred MB of device memory",
                         communicator_library);
}

static void release_prepared(struct communicator_opening *o)
{
    side_stream_event_close(&o->done);
    arena_release(&o->memory);
}

enum status communicator_prepare(struct communicator_opening *o)
{
    size_t floats = FIRST_FLOATS * (size_t)o->count;
    o->memory = (struct arena){0}, o->done = (struct side_stream_event){0};
    for (int i = 0; i < o->count; i++) TRY(open_stream(o->inits[i].communicator, o->queue));
    if (!o->count || o->inits[0].communicator->size == 1) return STATUS_OK;
    TRY(arena_init(&o->memory, floats * sizeof(float), queue_device_allocator(o->queue)));
    TRY(side_stream_event_open(&o->done));
    return STATUS_OK;
}

enum status communicator_open(struct communicator_opening *o)
{
    TRY(init_all(o));
    if (o->memory.base) TRY(connect_all(o));
    release_prepared(o);
    return STATUS_OK;
}

void communicator_cancel(struct communicator_opening *o)
{
    abort_inits(o); /* first: freeing device memory waits for transfers in flight */
    release_prepared(o);
    for (int i = 0; i < o->count; i++) communicator_leave(o->inits[i].communicator);
}

/* --- closing and aborting: a thread calls the library, and may be left behind --- */

struct ending {
    ncclComm_t *comms; /* owned */
    size_t count;
    struct queue *queue;
    bool aborts;
    pthread_mutex_t lock; /* protects the flags below */
    pthread_cond_t changed;
    bool is_over, is_left; /* is_left: nobody waits for it */
};

static void ending_free(struct ending *e)
{
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e->comms), free(e);
}

/* Errors no longer matter. */
static void *end_communicators(void *context)
{
    struct ending *e = context;
    (void)side_stream_set_device(e->queue); /* the library restores this thread's device */
    (void)ncclGroupStart();
    for (size_t i = 0; i < e->count; i++)
        (void)(e->aborts ? ncclCommAbort(e->comms[i]) : ncclCommDestroy(e->comms[i]));
    (void)ncclGroupEnd();
    pthread_mutex_lock(&e->lock);
    bool is_left = e->is_left;
    e->is_over = true;
    pthread_cond_signal(&e->changed);
    pthread_mutex_unlock(&e->lock);
    if (is_left) ending_free(e);
    return NULL;
}

/* false: it was left behind. */
static bool await_end(struct ending *e, int seconds)
{
    struct timespec until;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds ? seconds : COMMUNICATOR_CLOSE_S;
    pthread_mutex_lock(&e->lock);
    while (!e->is_over && !late) late = pthread_cond_timedwait(&e->changed, &e->lock, &until);
    bool is_over = e->is_over;
    e->is_left = !is_over;
    pthread_mutex_unlock(&e->lock);
    return is_over;
}

static bool end_all(struct communicator *const *all, size_t count, bool aborts)
{
    struct ending *e = heap(sizeof *e);
    struct failure last = {0};
    pthread_t thread;
    *e = (struct ending){.comms = heap(count * sizeof(ncclComm_t) + 1), .aborts = aborts};
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    for (size_t i = 0; i < count; i++) {
        ncclComm_t comm = take_handle(all[i]);
        if (comm) e->comms[e->count++] = comm, e->queue = all[i]->stream.queue;
    }
    status_save(&last, STATUS_COMM); /* whatever its status: keeps the caller's message */
    bool is_over = true;
    if (e->count && thread_start_foreground(&thread, end_communicators, e)) {
        (void)end_communicators(e);
    } else if (e->count) {
        is_over = await_end(e, all[0]->close_s);
        if (is_over)
            pthread_join(thread, NULL);
        else
            pthread_detach(thread);
    }
    status_restore(&last);
    if (is_over) ending_free(e);
    return is_over;
}

bool communicator_close(struct communicator *c) { return communicator_close_all(&c, 1); }

bool communicator_close_all(struct communicator *const *all, size_t count)
{
    bool is_over = end_all(all, count, false);
    for (size_t i = 0; i < count; i++) side_stream_close(&all[i]->stream);
    return is_over;
}

void communicator_leave(struct communicator *c)
{
    (void)take_handle(c);
    side_stream_close(&c->stream);
}

bool communicator_abort(struct communicator *c) { return end_all(&c, 1, true); }

bool communicator_abort_all(struct communicator *const *all, size_t count)
{
    return end_all(all, count, true);
}

/* --- transfers --- */

/* In a group call, so that no rank's send waits for its receive. */
static ncclResult_t shift(const struct communicator *c, const struct transfer *t,
                          ncclDataType_t type)
{
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    ncclComm_t comm = handle_of(c);
    ncclResult_t result = ncclGroupStart(), end;
    if (result) return result;
    result = ncclRecv(t->own, t->count, type, before, comm, c->stream.handle);
    if (!result) result = ncclSend(t->x, t->count, type, next, comm, c->stream.handle);
    end = ncclGroupEnd();
    return result ? result : end;
}

/* Likewise.  What a rank sends itself is a copy on the device. */
static ncclResult_t all_to_all(const struct communicator *c, const struct transfer *t,
                               ncclDataType_t type)
{
    ncclComm_t comm = handle_of(c);
    size_t each = transfer_element_bytes(t);
    const char *x = t->x;
    char *own = t->own;
    ncclResult_t result = ncclGroupStart(), end;
    if (result) return result;
    for (int r = 0; r < c->size && !result; r++) {
        if (t->receives[r]) result = ncclRecv(own, t->receives[r], type, r, comm, c->stream.handle);
        if (t->sends[r] && !result)
            result = ncclSend(x, t->sends[r], type, r, comm, c->stream.handle);
        own += t->receives[r] * each, x += t->sends[r] * each;
    }
    end = ncclGroupEnd();
    return result ? result : end;
}

static ncclResult_t issue(const struct communicator *c, const struct transfer *t, int peer)
{
    ncclDataType_t type = t->is_bytes ? ncclUint8 : t->dtype == F32 ? ncclFloat32 : ncclBfloat16;
    ncclComm_t comm = handle_of(c);
    size_t n = t->count;
    void *stream = c->stream.handle;
    char *x = t->x;
    switch (t->kind) {
    case TRANSFER_all_gather: {
        size_t mine = (size_t)c->rank * n * transfer_element_bytes(t);
        return ncclAllGather(x + mine, x, n, type, comm, stream);
    }
    case TRANSFER_reduce_scatter:
        return ncclReduceScatter(x, t->own, n, type, ncclSum, comm, stream);
    case TRANSFER_all_reduce: return ncclAllReduce(x, x, n, type, ncclSum, comm, stream);
    case TRANSFER_broadcast: return ncclBroadcast(x, x, n, type, peer, comm, stream);
    case TRANSFER_shift: return shift(c, t, type);
    case TRANSFER_all_to_all: return all_to_all(c, t, type);
    case TRANSFER_send: return ncclSend(x, n, type, peer, comm, stream);
    case TRANSFER_receive: return ncclRecv(x, n, type, peer, comm, stream);
    case TRANSFER_COUNT: break;
    }
    BUG("unknown kind of transfer");
}

enum status communicator_issue(struct communicator *c, const struct transfer *t, int peer)
{
    TRY(check(c, transfer_name(t->kind), issue(c, t, peer)));
    return STATUS_OK;
}

enum status communicator_group_start(void)
{
    TRY(check(NULL, "a group call", ncclGroupStart()));
    return STATUS_OK;
}

enum status communicator_group_end(enum status issued)
{
    ncclResult_t end = ncclGroupEnd();
    TRY(issued);
    TRY(check(NULL, "a group call", end));
    return STATUS_OK;
}

enum status communicator_async_error(const struct communicator *c)
{
    ncclResult_t state = ncclSuccess;
    ncclComm_t comm = handle_of(c);
    if (!comm) return STATUS_OK;
    TRY(check(c, "ncclCommGetAsyncError", ncclCommGetAsyncError(comm, &state)));
    if (state != ncclInProgress) TRY(check(c, "a transfer", state));
    return STATUS_OK;
}

enum status communicator_register(struct communicator *c, void *at, size_t bytes, void **handle)
{
    TRY(check(c, "registering memory", ncclCommRegister(handle_of(c), at, bytes, handle)));
    return STATUS_OK;
}

void communicator_deregister(struct communicator *c, void *handle)
{
    ncclComm_t comm = handle_of(c);
    if (comm) (void)ncclCommDeregister(comm, handle);
}
