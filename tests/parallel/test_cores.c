// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "test.h"

#include "base/thread.h"
#include "parallel/cores.h"

static enum status shares(const struct comm *world, void *context)
{
    int cores, want = thread_cores() / world->size;
    (void)context;
    TRY(cores_share(world, &cores));
    RANK_CHECK(cores == (want ? want : 1));
    return STATUS_OK;
}

TEST(cores_that_all_ranks_may_use_are_shared_out)
{
    for (int size = 2; size <= 5; size++) CHECK_STATUS(OK, ranks_run(size, shares, NULL));
}
