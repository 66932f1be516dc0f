// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/common.h"

#include "comm/ranks.h"
#include "test.h"

static enum status agree_on_all(const struct comm *world, void *context)
{
    (void)context;
    int64_t x = world->rank == 0 ? (INT64_C(1) << 53) - 1 : -5;
    uint32_t values[3] = {0};
    values[world->rank % 3] = world->rank < 3 ? UINT32_MAX - (uint32_t)world->rank : 0;
    RANK_CHECK(common_size(world) == 4 && common_leads(world) == (common_rank(world) == 0));
    TRY(common_number(world, &x));
    RANK_CHECK(x == (INT64_C(1) << 53) - 1);
    TRY(common_values(world, values, 3));
    for (uint32_t i = 0; i < 3; i++) RANK_CHECK(values[i] == UINT32_MAX - i);
    RANK_CHECK(common_agree(world, STATUS_OK) == STATUS_OK);
    enum status st = world->rank == 2 ? STATUS_IO : STATUS_OK;
    RANK_CHECK(common_agree(world, st) == STATUS_IO);
    return STATUS_OK;
}

TEST(ranks_agree_on_a_number_on_values_and_on_failures)
{
    CHECK_STATUS(OK, ranks_run(4, agree_on_all, NULL));
}

TEST(a_rank_that_is_alone_agrees_with_itself)
{
    int64_t x = 7;
    uint32_t value = 9;
    CHECK(common_size(NULL) == 1 && common_leads(NULL));
    CHECK_STATUS(OK, common_number(NULL, &x));
    CHECK_STATUS(OK, common_values(NULL, &value, 1));
    CHECK(x == 7 && value == 9);
    CHECK_STATUS(OK, common_agree(NULL, STATUS_OK));
    CHECK_STATUS(DATA, common_agree(NULL, STATUS_DATA));
}
