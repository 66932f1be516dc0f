// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "comm/self/self.h"

TEST(self_is_rank_0_of_1_and_keeps_its_values)
{
    struct comm c = comm_self();
    CHECK(c.rank == 0 && c.size == 1);
    double values[3] = {1.5, -2, NAN};
    CHECK_STATUS(OK, comm_all_reduce(&c, REDUCE_SUM, values, 3));
    CHECK_STATUS(OK, comm_all_reduce(&c, REDUCE_MAX, values, 3));
    CHECK(values[0] == 1.5 && values[1] == -2 && isnan(values[2]));
}

TEST(self_agrees_with_itself)
{
    struct comm c = comm_self();
    CHECK_STATUS(OK, comm_agree(&c, STATUS_OK));
    CHECK_STATUS(SHAPE, comm_agree(&c, status_fail(STATUS_SHAPE, "x.c", 1, "mine")));
    CHECK_MESSAGE("mine");
}

TEST(self_has_its_own_part_and_its_own_sum)
{
    struct comm c = comm_self(), part;
    float x[3] = {1, 2, 3}, own[3] = {0};
    CHECK_STATUS(OK, comm_split(&c, 7, 0, &part));
    CHECK(part.rank == 0 && part.size == 1);
    CHECK(transfer_work_bytes(TRANSFER_reduce_scatter, F32, 3, 1) == 0);
    CHECK_STATUS(OK, comm_run(&part, &(struct transfer){TRANSFER_all_gather, F32, 3, .x = x}));
    CHECK_STATUS(OK, comm_run(&part, &(struct transfer){TRANSFER_all_reduce, F32, 3, .x = x}));
    CHECK_STATUS(OK, comm_run(&part, &(struct transfer){TRANSFER_broadcast, F32, 3, .x = x}));
    CHECK_STATUS(OK, comm_run(&part, &(struct transfer){TRANSFER_reduce_scatter, F32, 3, .x = x,
                                                        .own = own}));
    CHECK(x[0] == 1 && x[2] == 3 && !memcmp(x, own, sizeof x));
    comm_release(&part);
}
