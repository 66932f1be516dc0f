// SPDX-License-Identifier: Apache-2.0
#include "comm/launched.h"
#include "comm/transports.h"
#include "test.h"

#include <stdlib.h>

TEST(mpi_fulfills_the_contract_of_comm) { transport_check(launched_run, "contract"); }

TEST(mpi_transfers_proceed_while_the_program_computes) { transport_check(launched_run, "overlap"); }

TEST(mpi_allows_two_groups_to_be_used_in_different_orders)
{
    transport_check(launched_run, "any_order");
}

RANKS(without_gpu_support)
{
    (void)world;
    const char *set = getenv("MPICH_GPU_SUPPORT_ENABLED");
    if (!set || strcmp(set, "0") != 0) FAIL(COMM, "Cray MPICH expects its GPU library");
    return STATUS_OK;
}

TEST(mpi_is_opened_without_gpu_support_that_the_environment_requests)
{
    setenv("MPICH_GPU_SUPPORT_ENABLED", "1", 1);
    transport_check(launched_run, "without_gpu_support");
    unsetenv("MPICH_GPU_SUPPORT_ENABLED");
}

TEST(mpi_ends_all_ranks_when_one_fails)
{
    transport_check_failure(launched_run, "failure", STATUS_DIVERGED,
                            "rank 1: DIVERGED: the loss is not finite");
}

TEST(mpi_ends_all_ranks_when_a_check_of_the_contract_fails_on_one)
{
    transport_check_failure(launched_run, "failed_check", STATUS_DATA,
                            "rank 1: DATA: tests/comm/transports.c");
}

TEST(mpi_reports_a_message_of_the_wrong_size)
{
    transport_check_failure(launched_run, "truncated", STATUS_COMM,
                            "rank 0 in a group of 4 sent 16 bytes with tag 7; rank 1 expects 32");
}
