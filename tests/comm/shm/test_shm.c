// SPDX-License-Identifier: Apache-2.0
#include "comm/launched.h"
#include "comm/transports.h"
#include "test.h"

#include "comm/shm/launcher.h"
#include "comm/shm/shm.h"

#include <stdlib.h>

TEST(shm_fulfills_the_contract_of_comm) { transport_check(launched_run_here, "contract"); }

TEST(shm_transfers_proceed_while_the_program_computes)
{
    transport_check(launched_run_here, "overlap");
}

TEST(shm_allows_two_groups_to_be_used_in_different_orders)
{
    transport_check(launched_run_here, "any_order");
}

TEST(shm_ends_all_ranks_when_one_fails)
{
    transport_check_failure(launched_run_here, "failure", STATUS_DIVERGED,
                            "rank 1: DIVERGED: the loss is not finite");
}

TEST(shm_ends_all_ranks_when_a_check_of_the_contract_fails_on_one)
{
    transport_check_failure(launched_run_here, "failed_check", STATUS_DATA,
                            "rank 1: DATA: tests/comm/transports.c");
}

TEST(shm_reports_a_message_of_the_wrong_size)
{
    transport_check_failure(launched_run_here, "truncated", STATUS_COMM,
                            "rank 0 in a group of 4 sent 16 bytes with tag 7; rank 1 expects 32");
}

/* Messages of a collective whose ranks disagree about its size. */
RANKS(uneven)
{
    float x[64] = {0};
    size_t count = world->rank ? 8 : 16;
    TRY(comm_run(world, &(struct transfer){TRANSFER_all_gather, F32, count, .x = x}));
    return STATUS_OK;
}

TEST(shm_reports_a_collective_of_the_wrong_size)
{
    transport_check_failure(launched_run_here, "uneven", STATUS_COMM,
                            "not as many as this rank expects");
}

/* The variables of a launcher, in a process that it did not start. */
TEST(shm_rejects_a_process_that_is_not_a_rank)
{
    struct comm world;
    setenv(LAUNCHER_RANK, "0", 1), setenv(LAUNCHER_RANKS, "2", 1);
    CHECK_STATUS(COMM, shm_join(&world));
    CHECK_MESSAGE("LLAMERO_RANK=0, LLAMERO_RANKS=2: this process is not a rank");
    shm_abort(70);
    unsetenv(LAUNCHER_RANK), unsetenv(LAUNCHER_RANKS);
}
