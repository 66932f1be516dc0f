// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "comms/self/self.h"

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
