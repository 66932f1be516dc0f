// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/communicator.h"

#include "comm/nccl/library.h"

#include <string.h>

const char communicator_library[] = NCCL_TITLE;

_Static_assert(COMMUNICATOR_ID_BYTES == NCCL_UNIQUE_ID_BYTES,
               "an id is copied to and from ncclUniqueId");

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
    const char *error = ncclGetErrorString(result);
    if (!c) FAIL(COMM, "%s: %s error: %s", what, communicator_library, error);
    ncclComm_t comm = handle_of(c);
    const char *detail = comm ? ncclGetLastError(comm) : NULL;
    if (!detail) detail = "";
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

static enum status init(struct communicator *c, const unsigned char id[COMMUNICATOR_ID_BYTES],
                        int max_blocks)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    memcpy(unique.internal, id, COMMUNICATOR_ID_BYTES);
    if (max_blocks) config.maxCTAs = max_blocks, config.minCTAs = 1;
    ncclResult_t result =
        ncclCommInitRankConfig((ncclComm_t *)&c->handle, c->size, unique, c->rank, &config);
    TRY(check(c, "opening", result));
    return STATUS_OK;
}

enum status communicator_open(struct communicator_init *inits, int count, int max_blocks,
                              struct queue *queue)
{
    enum status st = STATUS_OK;
    for (int i = 0; i < count; i++) TRY(side_stream_open(&inits[i].communicator->stream, queue));
    TRY(communicator_group_start());
    for (int i = 0; i < count && !st; i++)
        st = init(inits[i].communicator, inits[i].id, max_blocks);
    ncclResult_t end = ncclGroupEnd();
    TRY(st);
    TRY(check(count ? inits[0].communicator : NULL, "opening", end));
    return STATUS_OK;
}

enum status communicator_split(struct communicator *c, int color, int key, struct communicator *out)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t part = NULL;
    config.splitShare = 0;
    if (color < 0) color = NCCL_SPLIT_NOCOLOR;
    TRY(check(c, "splitting", ncclCommSplit(handle_of(c), color, key, &part, &config)));
    if (!part) return STATUS_OK;
    out->handle = part;
    TRY(side_stream_open(&out->stream, c->stream.queue));
    return STATUS_OK;
}

void communicator_close(struct communicator *c)
{
    ncclComm_t comm = take_handle(c);
    if (comm) (void)ncclCommDestroy(comm); /* an error no longer matters */
    side_stream_close(&c->stream);
}

void communicator_abort(struct communicator *c)
{
    ncclComm_t comm = take_handle(c);
    if (comm) (void)ncclCommAbort(comm);
}

void communicator_abort_all(struct communicator *const *all, size_t count)
{
    (void)ncclGroupStart();
    for (size_t i = 0; i < count; i++) communicator_abort(all[i]);
    (void)ncclGroupEnd(); /* an error no longer matters */
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
