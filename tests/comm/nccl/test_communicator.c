// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/communicator.h"

#include "backends/cpu/cpu.h"
#include "comm/nccl/nccl.h"
#include "comm/nccl/stub.h"
#include "comm/ranks.h"
#include "tensor/strict_device.h"
#include "test.h"

#include <time.h>

struct two_ids {
    unsigned char id[2][COMMUNICATOR_ID_BYTES];
};

/* Two communicators of two ranks, which each opens and closes in another order; a message each way,
 * in one group call. */
static enum status exchange_messages(const struct comm *world, void *context)
{
    const struct two_ids *ids = context;
    struct queue queue = {.num_threads = 1};
    struct communicator comms[2];
    struct communicator_init inits[2];
    struct communicator_opening opening = {.inits = inits, .count = 2, .queue = &queue};
    float mine = (float)(world->rank + 1), got = 0;
    struct side_stream_event done;
    for (int i = 0; i < 2; i++) {
        int which = world->rank ? 1 - i : i;
        comms[which] =
            (struct communicator){.name = "pair", .rank = world->rank, .size = 2, .max_blocks = 4};
        inits[i] =
            (struct communicator_init){.communicator = &comms[which], .first = TRANSFER_broadcast};
        memcpy(inits[i].id, ids->id[which], COMMUNICATOR_ID_BYTES);
    }
    TRY(communicator_prepare(&opening));
    TRY(communicator_open(&opening));
    struct transfer out = {TRANSFER_send, F32, 1, .x = &mine};
    struct transfer in = {TRANSFER_receive, F32, 1, .x = &got};
    TRY(communicator_group_start());
    TRY(communicator_issue(&comms[world->rank], &out, 1 - world->rank));
    TRY(communicator_issue(&comms[1 - world->rank], &in, 1 - world->rank));
    TRY(communicator_group_end(STATUS_OK));
    TRY(side_stream_event_open(&done));
    TRY(side_stream_record(&comms[1 - world->rank].stream, &done));
    TRY(side_stream_synchronize(&done));
    RANK_CHECK(got == (float)(2 - world->rank));
    TRY(communicator_async_error(&comms[0]));
    side_stream_event_close(&done);
    RANK_CHECK(communicator_close_all(
        (struct communicator *[]){&comms[world->rank], &comms[1 - world->rank]}, 2));
    return STATUS_OK;
}

TEST(communicators_open_issue_and_close_in_group_calls)
{
    struct two_ids ids;
    CHECK_STATUS(OK, communicator_id(ids.id[0]));
    CHECK_STATUS(OK, communicator_id(ids.id[1]));
    CHECK_STATUS(OK, ranks_run(2, exchange_messages, &ids));
    CHECK(!stub_counts().comms && !stub_counts().streams);
}

TEST(communicator_is_left_if_other_ranks_do_not_close_theirs)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    struct queue queue = {.num_threads = 1};
    struct communicator c = {.name = "alone", .size = 1, .close_s = 1};
    struct communicator_init init = {.communicator = &c};
    struct communicator_opening opening = {.inits = &init, .count = 1, .queue = &queue};
    CHECK_STATUS(OK, communicator_id(init.id));
    CHECK_STATUS(OK, communicator_prepare(&opening));
    CHECK_STATUS(OK, communicator_open(&opening));
    stub_block_destroy(true);
    status_fail(STATUS_IO, "x.c", 1, "mine");
    CHECK(!communicator_close(&c));
    CHECK_MESSAGE("mine");
    CHECK(!c.handle && stub_counts().comms == 1 && !stub_counts().streams);
    stub_block_destroy(false);
    while (stub_counts().comms) nanosleep(&ms, NULL);
}

TEST(communicator_can_be_closed_after_an_abort)
{
    struct queue queue = {.num_threads = 1};
    struct communicator c = {.name = "alone", .size = 1};
    struct communicator_init init = {.communicator = &c};
    struct communicator_opening opening = {.inits = &init, .count = 1, .queue = &queue};
    void *handle;
    CHECK_STATUS(OK, communicator_id(init.id));
    CHECK_STATUS(OK, communicator_prepare(&opening));
    CHECK_STATUS(OK, communicator_open(&opening));
    CHECK_STATUS(OK, communicator_register(&c, &queue, sizeof queue, &handle));
    communicator_deregister(&c, handle);
    CHECK(!stub_counts().registered);
    stub_break(0, "a wire is cut");
    CHECK_STATUS(COMM, communicator_async_error(&c));
    CHECK_MESSAGE("a transfer on rank 0 of 1 in group alone: NCCL error: remote process exited");
    CHECK_MESSAGE("a wire is cut");
    communicator_abort(&c);
    CHECK_STATUS(OK, communicator_async_error(&c));
    stub_break(0, NULL);
    communicator_close(&c);
    CHECK(!stub_counts().comms && !stub_counts().streams);
}

/* --- groups connect their ranks when they are wrapped, not in a step --- */

enum { MAX_KINDS = 3, RANKS = 3 };

struct later_transfers {
    enum comm_use use;
    int num_kinds;
    enum transfer_kind kinds[MAX_KINDS];
    int connected; /* ranks that they connect */
};

static enum status transfer_all(const struct comm *c, const struct later_transfers *l,
                                struct queue *queue)
{
    struct arena memory;
    TRY(arena_init(&memory, (RANKS + 1) * sizeof(float), queue_device_allocator(queue)));
    float *x = (float *)(void *)memory.base;
    enum status st = STATUS_OK;
    for (int i = 0; i < l->num_kinds; i++) {
        struct transfer t = {l->kinds[i], F32, 1, .x = x, .own = x + RANKS};
        TRY_OUT(comm_run(c, &t));
    }
out:
    arena_release(&memory);
    return st;
}

static enum status count_connections(const struct comm *world, const struct comm *c,
                                     const struct later_transfers *l, struct queue *queue)
{
    TRY(comm_agree(world, STATUS_OK)); /* all have opened */
    int before = stub_counts().connected;
    TRY(comm_agree(world, STATUS_OK));
    TRY(transfer_all(c, l, queue));
    TRY(comm_agree(world, STATUS_OK));
    RANK_CHECK(stub_counts().connected - before == l->connected);
    return STATUS_OK;
}

static enum status run_rank(const struct comm *world, void *context)
{
    const struct later_transfers *l = context;
    struct queue *queue;
    struct nccl *n;
    struct comm c;
    struct failure failure = {0};
    TRY(cpu_queue_open(&queue, 1, 0));
    strict_open(queue, &ops_cpu_reference, false);
    TRY(nccl_open(&n, queue, 1000));
    TRY(comm_split(world, 0, world->rank, &c));
    enum status st = nccl_wrap(&c, n, "shard", l->use);
    if (!st) st = count_connections(world, &c, l, queue);
    status_save(&failure, st);
    comm_release(&c);
    nccl_close(n);
    strict_close(queue);
    cpu_queue_close(queue);
    return status_restore(&failure);
}

TEST(communicators_connect_ranks_when_a_group_is_wrapped)
{
    struct later_transfers rows[] = {
        {COMM_ALL, 3, {TRANSFER_all_gather, TRANSFER_reduce_scatter, TRANSFER_broadcast}, 0},
        {COMM_ALL, 2, {TRANSFER_all_reduce, TRANSFER_all_reduce}, RANKS}, /* trees */
        {COMM_ONLY_SHIFTS, 2, {TRANSFER_shift, TRANSFER_shift}, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_STATUS(OK, ranks_run(RANKS, run_rank, &rows[i]));
    CHECK(!stub_counts().comms && !stub_counts().streams && !stub_counts().events);
}

TEST(communicators_blame_memory_for_a_failed_connection_only_if_the_library_does)
{
    struct later_transfers none = {.use = COMM_ALL};
    stub_refuse_transfers(true);
    CHECK_STATUS(COMM, ranks_run(2, run_rank, &none));
    CHECK_MESSAGE("connecting ranks: broadcast on rank 0 of 2 in group shard: NCCL error");
    const char *const errors[] = {"Cuda failure 2 'out of memory'",
                                  "Failed to CUDA malloc 4194304 bytes"};
    for (int i = 0; i < 2; i++) {
        stub_break(0, errors[i]);
        CHECK_STATUS(COMM, ranks_run(2, run_rank, &none));
        CHECK_MESSAGE("connecting ranks, for which NCCL needs some hundred MB of device memory: "
                      "broadcast on rank 0 of 2 in group shard: NCCL error: an error: ");
        CHECK_MESSAGE(errors[i]);
    }
    stub_refuse_transfers(false), stub_break(0, NULL);
    CHECK(!stub_counts().comms && !stub_counts().streams && !stub_counts().events);
}
