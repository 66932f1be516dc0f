// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/channel.h"

#include "comm/nccl/stub.h"
#include "comm/ranks.h"
#include "test.h"

static void close_all(struct channel *list)
{
    for (struct channel *next; list; list = next) {
        next = list->next;
        link_close(&list->link);
        free(list);
    }
}

/* A chain: every rank to the next, the last to none. */
static enum status opens_a_chain(const struct comm *world, void *context)
{
    struct queue on = {.num_threads = 1};
    struct message out = {world->rank + 1, 4}, in = {world->rank - 1, 4};
    bool sends = world->rank<world->size - 1, receives = world->rank> 0;
    struct messages messages = {&out, &in, sends, receives};
    struct channel *list = NULL;
    (void)context;
    TRY(channels_open(&list, world, "pp", &on, &messages));
    struct channel *first = list;
    struct transfer send = {.kind = TRANSFER_send, .peer = world->rank + 1, .tag = 4};
    struct transfer receive = {.kind = TRANSFER_receive, .peer = world->rank - 1, .tag = 4};
    const struct channel *there = channel_find(list, &send), *back = channel_find(list, &receive);
    RANK_CHECK((there != NULL) == sends && (back != NULL) == receives);
    RANK_CHECK(!there || (there->link.rank == 0 && there->link.size == 2));
    RANK_CHECK(!back || (back->link.rank == 1 && !strcmp(back->link.name, "pp")));
    send.tag = 5;
    RANK_CHECK(!channel_find(list, &send));
    TRY(channels_open(&list, world, "pp", &on, &messages));
    RANK_CHECK(list == first); /* they are there already */
    close_all(list);
    return STATUS_OK;
}

TEST(channels_are_opened_for_each_message_once)
{
    CHECK_STATUS(OK, ranks_run(4, opens_a_chain, NULL));
    CHECK(!stub_counts().comms && !stub_counts().lanes && !stub_counts().marks);
}

static enum status awaits_itself(const struct comm *world, void *context)
{
    struct queue on = {.num_threads = 1};
    struct message out = {1 - world->rank, 1}, in = {1 - world->rank, 1 + world->rank};
    struct messages messages = {&out, &in, 1, 1};
    struct channel *list = NULL;
    (void)context;
    enum status st = channels_open(&list, world, "cp", &on, &messages);
    RANK_CHECK(st == STATUS_COMM && !list);
    if (world->rank == 1)
        RANK_CHECK(strstr(status_message(), "rank 1 of the group cp of 2 awaits messages with tag "
                                            "2 of rank 0, which sends none"));
    return STATUS_OK;
}

TEST(channels_stay_closed_on_all_ranks_where_one_awaits_what_nobody_sends)
{
    CHECK_STATUS(OK, ranks_run(2, awaits_itself, NULL));
    CHECK(!stub_counts().comms && !stub_counts().lanes);
}
