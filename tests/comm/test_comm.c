// SPDX-License-Identifier: Apache-2.0
#include "comm/contract.h"
#include "comm/ranks.h"
#include "test.h"

enum { MOST_RANKS = 5 };

#define X(name, ranks)                                                                             \
    TEST(comm_##name)                                                                              \
    {                                                                                              \
        for (int size = ranks ? ranks : 2; size <= (ranks ? ranks : MOST_RANKS); size++)           \
            CHECK_STATUS(OK, ranks_run(size, contract_##name, NULL));                              \
    }
CONTRACT_LIST(X)
#undef X

static enum status misses_a_rank(const struct comm *c, void *context)
{
    (void)context;
    if (c->rank == 1) FAIL(IO, "the disk is gone");
    TRY(comm_agree(c, STATUS_OK));
    return STATUS_OK;
}

TEST(comm_agree_reports_a_rank_that_is_gone)
{
    CHECK_STATUS(IO, ranks_run(2, misses_a_rank, NULL));
    CHECK_MESSAGE("the disk is gone");
}
