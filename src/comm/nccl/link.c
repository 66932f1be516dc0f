// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/link.h"

#if defined(GPU_HIP)
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif

#include <string.h>

#if defined(GPU_HIP)
const char link_library[] = "RCCL";
#else
const char link_library[] = "NCCL";
#endif

_Static_assert(LINK_ID_BYTES == NCCL_UNIQUE_ID_BYTES, "an id travels as it is");

/* The guard's thread may cut the link off while a call of it lasts. */
static ncclComm_t comm_of(const struct link *l)
{
    return l ? __atomic_load_n(&l->comm, __ATOMIC_ACQUIRE) : NULL;
}

static ncclComm_t comm_taken(struct link *l)
{
    return __atomic_exchange_n(&l->comm, NULL, __ATOMIC_ACQ_REL);
}

static enum status check(const struct link *l, const char *what, ncclResult_t result)
{
    if (result == ncclSuccess) return STATUS_OK;
    ncclComm_t comm = comm_of(l);
    const char *more = comm ? ncclGetLastError(comm) : NULL;
    if (!l) FAIL(COMM, "%s: %s says: %s", what, link_library, ncclGetErrorString(result));
    FAIL(COMM, "%s on rank %d of %d of the group %s: %s says: %s%s%s", what, l->rank, l->size,
         l->name, link_library, ncclGetErrorString(result), more && *more ? ": " : "",
         more ? more : "");
}

enum status link_id(unsigned char id[LINK_ID_BYTES])
{
    ncclUniqueId made;
    TRY(check(NULL, "an id for a group", ncclGetUniqueId(&made)));
    memcpy(id, made.internal, LINK_ID_BYTES);
    return STATUS_OK;
}

static enum status init(struct link *l, const unsigned char id[LINK_ID_BYTES], int most_blocks)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId made;
    memcpy(made.internal, id, LINK_ID_BYTES);
    if (most_blocks) config.maxCTAs = most_blocks, config.minCTAs = 1;
    ncclResult_t result =
        ncclCommInitRankConfig((ncclComm_t *)&l->comm, l->size, made, l->rank, &config);
    TRY(check(l, "opening", result));
    return STATUS_OK;
}

enum status link_open(struct link_plan *plans, int count, int most_blocks, struct queue *on)
{
    enum status st = STATUS_OK;
    for (int i = 0; i < count; i++) TRY(lane_open(&plans[i].link->lane, on));
    TRY(link_issue_begin());
    for (int i = 0; i < count && !st; i++) st = init(plans[i].link, plans[i].id, most_blocks);
    ncclResult_t end = ncclGroupEnd();
    TRY(st);
    TRY(check(count ? plans[0].link : NULL, "opening", end));
    return STATUS_OK;
}

enum status link_split(struct link *l, int color, int key, struct link *out)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t made = NULL;
    config.splitShare = 0;
    if (color < 0) color = NCCL_SPLIT_NOCOLOR;
    TRY(check(l, "a split", ncclCommSplit(comm_of(l), color, key, &made, &config)));
    if (!made) return STATUS_OK;
    out->comm = made;
    TRY(lane_open(&out->lane, l->lane.on));
    return STATUS_OK;
}

void link_close(struct link *l)
{
    ncclComm_t comm = comm_taken(l);
    if (comm) (void)ncclCommDestroy(comm); /* what it could say no longer matters */
    lane_close(&l->lane);
}

void link_cut(struct link *l)
{
    ncclComm_t comm = comm_taken(l);
    if (comm) (void)ncclCommAbort(comm);
}

static ncclResult_t issue(const struct link *l, const struct transfer *t, int peer)
{
    ncclDataType_t type = t->is_bytes ? ncclUint8 : t->dtype == F32 ? ncclFloat32 : ncclBfloat16;
    ncclComm_t comm = comm_of(l);
    size_t n = t->count;
    void *stream = l->lane.stream;
    char *x = t->x;
    switch (t->kind) {
    case TRANSFER_all_gather: {
        size_t mine = (size_t)l->rank * n * transfer_element_bytes(t);
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
    BUG("no kind of transfer");
}

enum status link_issue(struct link *l, const struct transfer *t, int peer)
{
    TRY(check(l, transfer_name(t->kind), issue(l, t, peer)));
    return STATUS_OK;
}

enum status link_issue_begin(void)
{
    TRY(check(NULL, "calls at once", ncclGroupStart()));
    return STATUS_OK;
}

enum status link_issue_end(void)
{
    TRY(check(NULL, "calls at once", ncclGroupEnd()));
    return STATUS_OK;
}

enum status link_check(const struct link *l)
{
    ncclResult_t state = ncclSuccess;
    ncclComm_t comm = comm_of(l);
    if (!comm) return STATUS_OK;
    TRY(check(l, "a look", ncclCommGetAsyncError(comm, &state)));
    if (state != ncclInProgress) TRY(check(l, "a transfer", state));
    return STATUS_OK;
}

enum status link_register(struct link *l, void *at, size_t bytes, void **handle)
{
    TRY(check(l, "memory for transfers", ncclCommRegister(comm_of(l), at, bytes, handle)));
    return STATUS_OK;
}

void link_unregister(struct link *l, void *handle)
{
    ncclComm_t comm = comm_of(l);
    if (comm) (void)ncclCommDeregister(comm, handle);
}
