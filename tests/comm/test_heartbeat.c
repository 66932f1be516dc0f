// SPDX-License-Identifier: Apache-2.0
#include "comm/launched.h"
#include "comm/ranks.h"
#include "test.h"

#include "base/activity.h"

#include <signal.h>
#include <unistd.h>

enum { RANKS_OF_A_TEST = 4, STUCK = 2 };

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
    int code = launched_run_here(3, "late", &err);
    if (code) print_error("%s\n", err.data);
    CHECK(code == 0);
    text_release(&err);
}

static enum status sum(const struct comm *world)
{
    double x = 1;
    TRY(comm_all_reduce(world, REDUCE_SUM, &x, 1));
    return STATUS_OK;
}

/* As a run does, in step 7, with limits for tests. */
static enum status begin(const struct comm *world)
{
    activity_begin();
    activity_set_step(7);
    activity_enter(ACTIVITY_computing);
    activity_set_limits(4, 1000);
    TRY(sum(world));
    return STATUS_OK;
}

/* Runs RANKS(name) and checks the exit code and what the ranks report. */
static void check_report(const char *name, int want, const char *const *said)
{
    struct text err = {0};
    int code = launched_run_here(RANKS_OF_A_TEST, name, &err);
    if (code != want) print_error("exit code %d: %s\n", code, err.data);
    CHECK(code == want);
    for (; *said; said++) {
        if (!strstr(err.data, *said)) print_error("\"%s\" not in: %s\n", *said, err.data);
        CHECK(strstr(err.data, *said));
    }
    text_release(&err);
}
#define CHECK_REPORT(name, want, ...)                                                              \
    check_report(name, want, (const char *const[]){__VA_ARGS__, NULL})

RANKS(killed)
{
    TRY(begin(world));
    if (world->rank == STUCK) raise(SIGKILL);
    TRY(sum(world));
    return STATUS_OK;
}

TEST(heartbeat_names_a_rank_that_was_killed)
{
    CHECK_REPORT("killed", 81, "rank 2 on ", " was killed by SIG", "KILL at step 7, ",
                 "after collective 1 (all_reduce of 8 bytes, 4 ranks)");
}

RANKS(exited)
{
    TRY(begin(world));
    if (world->rank == STUCK) _exit(3);
    TRY(sum(world));
    return STATUS_OK;
}

TEST(heartbeat_names_a_rank_that_exited)
{
    CHECK_REPORT("exited", 81, "rank 2 on ", " ended with exit code 3 at step 7, ");
}

RANKS(stopped)
{
    TRY(begin(world));
    if (world->rank == STUCK) raise(SIGSTOP);
    TRY(sum(world));
    return STATUS_OK;
}

TEST(heartbeat_names_a_rank_that_is_stopped)
{
    CHECK_REPORT("stopped", 82, "the run hangs: ", "rank 2 on ", " stands out: step 7, ",
                 "its process is stopped", "rank 0 on ", "rank 3 on ");
}

RANKS(stuck)
{
    TRY(begin(world));
    activity_enter(ACTIVITY_reading);
    while (world->rank == STUCK) pause();
    TRY(sum(world));
    return STATUS_OK;
}

TEST(heartbeat_names_a_rank_whose_working_thread_is_stuck)
{
    CHECK_REPORT("stuck", 82, "the run hangs: ", "rank 2 on ",
                 " stands out: step 7, reading data, after collective 1 (all_reduce of 8 bytes, 4 "
                 "ranks)",
                 ": step 7, reading data, in collective 2 ");
}

/* One rank waits for a message that no rank sends. */
RANKS(mismatched)
{
    float x;
    struct transfer t = {TRANSFER_receive, F32, 1, .x = &x, .peer = 0, .tag = 7};
    TRY(begin(world));
    if (world->rank == STUCK) TRY(comm_run(world, &t));
    TRY(sum(world));
    return STATUS_OK;
}

TEST(heartbeat_names_a_rank_in_another_collective)
{
    CHECK_REPORT("mismatched", 82, "the run hangs: ", "rank 2 on ", " stands out: step 7, ",
                 "in collective 2 (receive of 4 bytes, 4 ranks)", "in collective 2 (all_reduce");
}

/* A rank in a slow phase makes the others wait longer than their own limit. */
RANKS(slow)
{
    TRY(begin(world));
    if (world->rank == STUCK) {
        activity_enter(ACTIVITY_saving);
        sleep(8);
    }
    TRY(sum(world));
    return STATUS_OK;
}

TEST(heartbeat_allows_a_slow_phase)
{
    struct text err = {0};
    int code = launched_run_here(RANKS_OF_A_TEST, "slow", &err);
    if (code) print_error("%s\n", err.data);
    CHECK(code == 0 && !strstr(err.data ? err.data : "", "hang"));
    text_release(&err);
}

RANKS(failed)
{
    TRY(begin(world));
    if (world->rank == STUCK) FAIL(DIVERGED, "the loss is not finite");
    TRY(sum(world));
    return STATUS_OK;
}

TEST(heartbeat_leaves_the_report_to_a_rank_that_fails)
{
    struct text err = {0};
    int code = launched_run_here(RANKS_OF_A_TEST, "failed", &err);
    CHECK(code == status_exit_code(STATUS_DIVERGED));
    CHECK(strstr(err.data, "rank 2: DIVERGED: the loss is not finite"));
    CHECK(!strstr(err.data, "killed") && !strstr(err.data, "has died"));
    text_release(&err);
}
