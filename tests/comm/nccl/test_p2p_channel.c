// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/p2p_channel.h"

#include "base/heap.h"
#include "comm/nccl/stub.h"
#include "comm/ranks.h"
#include "tensor/device.h"
#include "test.h"

static void close_all(struct p2p_channel *list)
{
    for (struct p2p_channel *next; list; list = next) {
        next = list->next;
        communicator_close(&list->communicator);
        free(list);
    }
}

/* Every rank sends to the next one, except the last. */
static enum status opens_a_chain(const struct comm *world, void *context)
{
    struct queue queue = {.num_threads = 1};
    struct p2p_message out = {world->rank + 1, 4}, in = {world->rank - 1, 4};
    bool sends = world->rank<world->size - 1, receives = world->rank> 0;
    struct p2p_messages messages = {&out, &in, sends, receives};
    struct p2p_channel *list = NULL;
    (void)context;
    TRY(p2p_channel_open(&list, world, "pp", &queue, &messages));
    struct p2p_channel *first = list;
    struct transfer send = {.kind = TRANSFER_send, .peer = world->rank + 1, .tag = 4};
    struct transfer receive = {.kind = TRANSFER_receive, .peer = world->rank - 1, .tag = 4};
    const struct p2p_channel *there = p2p_channel_find(list, &send),
                             *back = p2p_channel_find(list, &receive);
    RANK_CHECK((there != NULL) == sends && (back != NULL) == receives);
    RANK_CHECK(!there || (there->communicator.rank == 0 && there->communicator.size == 2));
    RANK_CHECK(!back || (back->communicator.rank == 1 && !strcmp(back->communicator.name, "pp")));
    send.tag = 5;
    RANK_CHECK(!p2p_channel_find(list, &send));
    TRY(p2p_channel_open(&list, world, "pp", &queue, &messages));
    RANK_CHECK(list == first); /* already open */
    close_all(list);
    return STATUS_OK;
}

TEST(p2p_channel_is_opened_once_for_each_message)
{
    CHECK_STATUS(OK, ranks_run(4, opens_a_chain, NULL));
    CHECK(!stub_counts().comms && !stub_counts().streams && !stub_counts().events);
}

static enum status expects_an_undeclared_send(const struct comm *world, void *context)
{
    struct queue queue = {.num_threads = 1};
    struct p2p_message out = {1 - world->rank, 1}, in = {1 - world->rank, 1 + world->rank};
    struct p2p_messages messages = {&out, &in, 1, 1};
    struct p2p_channel *list = NULL;
    (void)context;
    enum status st = p2p_channel_open(&list, world, "cp", &queue, &messages);
    RANK_CHECK(st == STATUS_COMM && !list);
    if (world->rank == 1)
        RANK_CHECK(strstr(status_message(), "rank 1 in group cp of 2 expects messages with tag 2 "
                                            "from rank 0, which declared no such send"));
    return STATUS_OK;
}

TEST(p2p_channels_open_on_no_rank_if_a_receive_has_no_send)
{
    CHECK_STATUS(OK, ranks_run(2, expects_an_undeclared_send, NULL));
    CHECK(!stub_counts().comms && !stub_counts().streams);
}

static int open_when_freed; /* communicators, when device memory was freed */

static enum status alloc_on_device(size_t size, void **out)
{
    *out = heap(size);
    return STATUS_OK;
}

static void free_on_device(void *at, size_t size)
{
    (void)size;
    open_when_freed = stub_counts().comms;
    free(at);
}

static enum status lose_device(struct queue *queue)
{
    (void)queue;
    FAIL(DEVICE, "the device is lost");
}

static enum status fail_to_alloc(size_t size, void **out)
{
    (void)size, (void)out;
    FAIL(MEMORY, "the device is full");
}

/* The others would wait for it forever in the library. */
static enum status lacks_memory_on_rank_1(const struct comm *world, void *context)
{
    const struct device full = {.own = {fail_to_alloc, free_on_device}};
    struct queue queue = {.num_threads = 1, .device = world->rank ? &full : NULL};
    struct p2p_message other = {1 - world->rank, 1};
    struct p2p_messages messages = {&other, &other, 1, 1};
    struct p2p_channel *list = NULL;
    (void)context;
    enum status st = p2p_channel_open(&list, world, "pp", &queue, &messages);
    RANK_CHECK(st == STATUS_MEMORY && !list);
    RANK_CHECK(strstr(status_message(), world->rank ? "the device is full" : "rank 1 failed"));
    return STATUS_OK;
}

TEST(p2p_channels_open_on_no_rank_if_one_lacks_memory)
{
    CHECK_STATUS(OK, ranks_run(2, lacks_memory_on_rank_1, NULL));
    CHECK(!stub_counts().comms && !stub_counts().streams && !stub_counts().events);
}

/* Freeing device memory would wait for first messages in flight. */
TEST(p2p_channels_are_aborted_before_device_memory_is_freed)
{
    const struct device device = {.own = {alloc_on_device, free_on_device}, .wait = lose_device};
    struct queue queue = {.num_threads = 1, .device = &device};
    const struct p2p_message self = {0, 1};
    struct p2p_messages messages = {&self, &self, 1, 1};
    struct p2p_channel *list = NULL;
    open_when_freed = -1;
    CHECK_STATUS(DEVICE, p2p_channel_open(&list, comm_self(), "pp", &queue, &messages));
    CHECK(!list && open_when_freed == 0);
    CHECK(!stub_counts().comms && !stub_counts().streams && !stub_counts().events);
}
