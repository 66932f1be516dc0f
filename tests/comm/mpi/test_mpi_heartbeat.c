// SPDX-License-Identifier: Apache-2.0
#include "comm/launched.h"
#include "test.h"

#include "comm/mpi/mpi.h"

/* The ranks are those of test_heartbeat.c. */
enum { RANKS_OF_A_TEST = 4, HANG_CODE = 82, TIMED_OUT = 124 };

TEST(mpi_heartbeat_lets_ranks_leave_one_after_the_other)
{
    struct text err = {0};
    int code = launched_run(3, "late", &err);
    if (code < 0) skip();
    if (code) print_error("%s\n", err.data);
    CHECK(code == 0);
    text_release(&err);
}

TEST(mpi_heartbeat_names_a_rank_that_was_killed)
{
    struct text err = {0};
    int code = launched_run(RANKS_OF_A_TEST, "killed", &err);
    if (code < 0) skip();
    CHECK(code && code != TIMED_OUT);
    /* MPICH's mpirun kills the others at once when one has died. */
    if (!strcmp(mpi_library, "Open MPI")) CHECK(strstr(err.data, " was killed by SIG"));
    text_release(&err);
}

TEST(mpi_heartbeat_names_a_rank_that_is_stopped)
{
    struct text err = {0};
    int code = launched_run(RANKS_OF_A_TEST, "stopped", &err);
    if (code < 0) skip();
    CHECK(code == HANG_CODE);
    CHECK(strstr(err.data, " stands out: step 7, ") && strstr(err.data, "its process is stopped"));
    text_release(&err);
}
