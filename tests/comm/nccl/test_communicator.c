// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/communicator.h"

#include "comm/nccl/stub.h"
#include "comm/ranks.h"
#include "test.h"

#include <time.h>

struct two_ids {
    unsigned char id[2][COMMUNICATOR_ID_BYTES];
};

/* Two communicators of two ranks, which each opens in another order; a message each way, in one
 * group call. */
static enum status exchange_messages(const struct comm *world, void *context)
{
    const struct two_ids *ids = context;
    struct queue queue = {.num_threads = 1};
    struct communicator comms[2];
    struct communicator_init inits[2];
    float mine = (float)(world->rank + 1), got = 0;
    struct side_stream_event done;
    for (int i = 0; i < 2; i++) {
        int which = world->rank ? 1 - i : i;
        comms[which] =
            (struct communicator){.name = "pair", .rank = world->rank, .size = 2, .max_blocks = 4};
        inits[i].communicator = &comms[which];
        memcpy(inits[i].id, ids->id[which], COMMUNICATOR_ID_BYTES);
    }
    TRY(communicator_open(inits, 2, &queue));
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
    for (int i = 0; i < 2; i++) communicator_close(&comms[i]);
    return STATUS_OK;
}

TEST(communicators_open_and_issue_in_group_calls)
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
    CHECK_STATUS(OK, communicator_id(init.id));
    CHECK_STATUS(OK, communicator_open(&init, 1, &queue));
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
    void *handle;
    CHECK_STATUS(OK, communicator_id(init.id));
    CHECK_STATUS(OK, communicator_open(&init, 1, &queue));
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
