// SPDX-License-Identifier: Apache-2.0
#include "comm/launched.h"
#include "comm/ranks.h"
#include "test.h"

#include <unistd.h>

/* Rank 1 leaves a second later; the others keep sending heartbeats meanwhile. */
RANKS(late)
{
    double x = 1;
    TRY(comm_all_reduce(world, REDUCE_SUM, &x, 1));
    RANK_CHECK(x == world->size);
    if (world->rank == 1) sleep(1);
    return STATUS_OK;
}

TEST(heartbeat_lets_ranks_leave_one_after_the_other)
{
    struct text err = {0};
    int code = launched_run(3, "late", &err);
    if (code < 0) skip();
    if (code) print_error("%s\n", err.data);
    CHECK(code == 0);
    text_release(&err);
}
