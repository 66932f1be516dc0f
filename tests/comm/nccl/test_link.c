// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/link.h"

#include "comm/nccl/stub.h"
#include "comm/ranks.h"
#include "test.h"

struct two {
    unsigned char id[2][LINK_ID_BYTES];
};

/* Two links between two ranks, planned in another order by each; a message each way, issued at
 * once. */
static enum status passes_on(const struct comm *world, void *context)
{
    const struct two *ids = context;
    struct queue on = {.num_threads = 1};
    struct link links[2], part = {.name = "part"};
    struct link_plan plans[2];
    float mine = (float)(world->rank + 1), got = 0;
    struct lane_mark done;
    for (int i = 0; i < 2; i++) {
        int which = world->rank ? 1 - i : i;
        links[which] = (struct link){.name = "pair", .rank = world->rank, .size = 2};
        plans[i].link = &links[which];
        memcpy(plans[i].id, ids->id[which], LINK_ID_BYTES);
    }
    TRY(link_open(plans, 2, 4, &on));
    struct transfer out = {TRANSFER_send, F32, 1, .x = &mine};
    struct transfer in = {TRANSFER_receive, F32, 1, .x = &got};
    TRY(link_issue_begin());
    TRY(link_issue(&links[world->rank], &out, 1 - world->rank));
    TRY(link_issue(&links[1 - world->rank], &in, 1 - world->rank));
    TRY(link_issue_end());
    TRY(lane_mark_open(&done));
    TRY(lane_set(&links[1 - world->rank].lane, &done));
    TRY(lane_wait(&done));
    RANK_CHECK(got == (float)(2 - world->rank));
    TRY(link_check(&links[0]));
    TRY(link_split(&links[0], world->rank ? -1 : 3, 0, &part));
    RANK_CHECK((part.comm != NULL) == (world->rank == 0));
    lane_mark_close(&done);
    link_close(&part);
    for (int i = 0; i < 2; i++) link_close(&links[i]);
    return STATUS_OK;
}

TEST(links_are_opened_together_and_issue_together)
{
    struct two ids;
    CHECK_STATUS(OK, link_id(ids.id[0]));
    CHECK_STATUS(OK, link_id(ids.id[1]));
    CHECK_STATUS(OK, ranks_run(2, passes_on, &ids));
    CHECK(!stub_counts().comms && !stub_counts().lanes);
}

TEST(a_link_that_was_cut_off_has_nothing_to_complain_of_and_can_be_closed)
{
    struct queue on = {.num_threads = 1};
    struct link l = {.name = "alone", .size = 1};
    struct link_plan plan = {.link = &l};
    void *handle;
    CHECK_STATUS(OK, link_id(plan.id));
    CHECK_STATUS(OK, link_open(&plan, 1, 0, &on));
    CHECK_STATUS(OK, link_register(&l, &on, sizeof on, &handle));
    link_unregister(&l, handle);
    CHECK(!stub_counts().registered);
    stub_break(0, "a wire is cut");
    CHECK_STATUS(COMM, link_check(&l));
    CHECK_MESSAGE("a transfer on rank 0 of 1 of the group alone: NCCL says: remote process exited");
    CHECK_MESSAGE("a wire is cut");
    link_cut(&l);
    CHECK_STATUS(OK, link_check(&l));
    stub_break(0, NULL);
    link_close(&l);
    CHECK(!stub_counts().comms && !stub_counts().lanes);
}
