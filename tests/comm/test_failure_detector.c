// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/activity.h"
#include "comm/failure_detector.h"
#include "comm/transfer.h"

#include <signal.h>

/* Rank 0 of `size` ranks that are all in step 5, computing, with a limit of 20 s. */
static void open_detector(struct failure_detector *d, int size)
{
    activity_begin();
    activity_set_limits(20, 600);
    activity_set_step(5);
    activity_enter(ACTIVITY_computing);
    activity_start_collective(TRANSFER_all_reduce, 64, size);
    failure_detector_init(d, 0, size);
    failure_detector_poll(d, 0);
    for (int r = 0; r < size; r++) {
        d->reports[r] = d->reports[0];
        snprintf(d->who[r].host, sizeof d->who[r].host, "host%d", r / 2);
        d->who[r].pid = 100 + r;
        d->who[r].kernel = (uint64_t)(r / 2 + 1);
    }
}

static void close_detector(struct failure_detector *d)
{
    failure_detector_release(d);
    activity_end();
}

/* The others report, every second, that they have waited for `idle_s` so far. */
static void pass(struct failure_detector *d, int seconds)
{
    for (int s = 0; s < seconds; s++) {
        failure_detector_poll(d, 1);
        for (int r = 1; r < d->size; r++) {
            struct rank_report reports[64] = {0};
            reports[r] = d->reports[r];
            reports[r].beat++, reports[r].idle_s += 1;
            failure_detector_merge(d, reports);
        }
    }
}

static enum status check(const struct failure_detector *d)
{
    int ending;
    enum status st = failure_detector_check(d, &ending);
    CHECK(!ending);
    return st;
}

TEST(failure_detector_finds_a_process_without_progress)
{
    struct failure_detector d;
    open_detector(&d, 1);
    pass(&d, 20);
    CHECK_STATUS(OK, check(&d));
    activity_tick();
    pass(&d, 21); /* the first of these sees the progress */
    CHECK_STATUS(OK, check(&d));
    pass(&d, 1);
    CHECK_STATUS(HANG, check(&d));
    CHECK_MESSAGE("the run hangs: no progress for 21 s: host0 (pid 100): step 5, forward and "
                  "backward, after collective ");
    CHECK(failure_detector_is_reporter(&d));
    close_detector(&d);
}

/* It completes the collective that the others wait for, and leaves before they have noticed. */
TEST(failure_detector_gives_the_others_time_when_a_slow_rank_has_left)
{
    struct failure_detector d;
    open_detector(&d, 4);
    d.reports[1].waiting = d.reports[3].waiting = true;
    d.reports[2].phase = ACTIVITY_saving, d.reports[2].limit_s = 600;
    double begin = activity_begin_wait();
    pass(&d, 30);
    CHECK_STATUS(OK, check(&d));
    CHECK(failure_detector_set_state(&d, 2, RANK_LEFT, 0));
    pass(&d, 20);
    CHECK_STATUS(OK, check(&d));
    pass(&d, 1);
    CHECK_STATUS(HANG, check(&d));
    activity_end_wait(begin);
    close_detector(&d);
}

TEST(failure_detector_has_no_limit_before_a_run_begins)
{
    struct failure_detector d;
    open_detector(&d, 1);
    activity_end();
    pass(&d, 10000);
    CHECK_STATUS(OK, check(&d));
    close_detector(&d);
}

TEST(failure_detector_names_the_rank_that_does_not_wait)
{
    struct failure_detector d;
    open_detector(&d, 4);
    d.reports[1].waiting = d.reports[3].waiting = true;
    d.reports[2].phase = ACTIVITY_reading;
    double begin = activity_begin_wait();
    pass(&d, 20);
    CHECK_STATUS(OK, check(&d));
    pass(&d, 1);
    CHECK_STATUS(HANG, check(&d));
    CHECK_MESSAGE(
        ": rank 2 on host1 (pid 102) stands out: step 5, reading data, after collective ");
    CHECK(!strstr(status_message(), "rank 1"));
    activity_end_wait(begin);
    close_detector(&d);
}

TEST(failure_detector_lets_ranks_wait_for_one_that_makes_progress)
{
    struct failure_detector d;
    open_detector(&d, 4);
    double begin = activity_begin_wait();
    for (int r = 1; r < 4; r++) d.reports[r].waiting = true;
    for (int i = 0; i < 100; i++) {
        d.reports[3].idle_s = 0;
        pass(&d, 1);
        CHECK_STATUS(OK, check(&d));
    }
    d.reports[3].limit_s = 600; /* in a slow phase */
    pass(&d, 599);
    CHECK_STATUS(OK, check(&d));
    pass(&d, 2);
    CHECK_STATUS(HANG, check(&d));
    activity_end_wait(begin);
    close_detector(&d);
}

TEST(failure_detector_names_the_minority_when_all_ranks_wait)
{
    struct failure_detector d;
    open_detector(&d, 5);
    double begin = activity_begin_wait();
    pass(&d, 1);
    for (int r = 1; r < 5; r++) d.reports[r] = d.reports[0];
    d.reports[3].kind = TRANSFER_broadcast, d.reports[4].step = 4;
    pass(&d, 21);
    CHECK_STATUS(HANG, check(&d));
    CHECK_MESSAGE(": rank 3 on host1 (pid 103) stands out: step 5, forward and backward, in "
                  "collective ");
    CHECK_MESSAGE("(broadcast of 64 bytes, 5 ranks); rank 4 on host2 (pid 104) stands out: step 4");
    activity_end_wait(begin);
    close_detector(&d);
}

TEST(failure_detector_names_the_rank_behind_of_two)
{
    struct failure_detector d;
    open_detector(&d, 2);
    double begin = activity_begin_wait();
    pass(&d, 1);
    d.reports[1] = d.reports[0];
    d.reports[0].step = 5, d.reports[1].step = 6;
    pass(&d, 21);
    CHECK_STATUS(HANG, check(&d));
    CHECK_MESSAGE("rank 0 on host0 (pid 100) stands out");
    activity_end_wait(begin);
    close_detector(&d);
}

TEST(failure_detector_names_no_rank_when_all_are_elsewhere)
{
    struct failure_detector d;
    open_detector(&d, 4);
    double begin = activity_begin_wait();
    pass(&d, 1);
    for (int r = 1; r < 4; r++)
        d.reports[r] = d.reports[0], d.reports[r].collectives += (uint64_t)r;
    pass(&d, 21);
    CHECK_STATUS(HANG, check(&d));
    CHECK(!strstr(status_message(), "stands out"));
    failure_detector_log_ranks(&d);
    activity_end_wait(begin);
    close_detector(&d);
}

TEST(failure_detector_finds_a_rank_without_heartbeats)
{
    struct failure_detector d;
    open_detector(&d, 4);
    for (int s = 0; s <= SILENCE_LIMIT_S; s++) {
        CHECK_STATUS(OK, check(&d));
        struct rank_report silent = d.reports[2];
        pass(&d, 1);
        d.silent_s[2] = s + 1;
        silent.beat = d.reports[2].beat;
        d.reports[2] = silent;
    }
    CHECK_STATUS(COMM, check(&d));
    CHECK_MESSAGE(
        "rank 2 on host1 (pid 102) is gone: no heartbeat for 8 s; it was last seen at step "
        "5, forward and backward, after collective ");
    CHECK(failure_detector_is_reporter(&d));
    close_detector(&d);
}

static char stopped(void *context, int rank) { return rank == *(int *)context ? 'T' : 0; }

TEST(failure_detector_tells_a_stopped_process_from_a_dead_one)
{
    struct failure_detector d;
    int rank = 2;
    open_detector(&d, 4);
    d.process_state = stopped, d.context = &rank;
    d.silent_s[rank] = 19;
    CHECK_STATUS(OK, check(&d));
    d.silent_s[rank] = 21;
    CHECK_STATUS(HANG, check(&d));
    CHECK_MESSAGE("no progress for 21 s: rank 2 on host1 (pid 102) stands out: step 5, ");
    CHECK_MESSAGE("its process is stopped");
    close_detector(&d);
}

TEST(failure_detector_tells_how_a_process_ended)
{
    static const struct {
        int status;
        const char *said;
    } cases[] = {{SIGKILL, "was killed by SIGKILL at step 5"},
                 {SIGSEGV | 0x80, "was killed by SIGSEGV at step 5"}, /* with a core file */
                 {3 << 8, "ended with exit code 3 at step 5"},
                 {-1, "has died at step 5"},
                 {40, "was killed by signal 40"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct failure_detector d;
        open_detector(&d, 4);
        CHECK(failure_detector_set_state(&d, 3, RANK_DEAD, cases[i].status));
        CHECK(!failure_detector_set_state(&d, 3, RANK_DEAD, 0));
        CHECK_STATUS(COMM, check(&d));
        CHECK_MESSAGE("rank 3 on host1 (pid 103) ");
        CHECK_MESSAGE(cases[i].said);
        close_detector(&d);
    }
}

TEST(failure_detector_lets_a_rank_on_the_host_of_a_dead_one_report)
{
    struct failure_detector d;
    open_detector(&d, 4);
    failure_detector_set_state(&d, 3, RANK_DEAD, SIGKILL);
    CHECK(!failure_detector_is_reporter(&d)); /* rank 2 is on its host */
    failure_detector_set_state(&d, 2, RANK_DEAD, SIGKILL);
    CHECK(failure_detector_is_reporter(&d));
    failure_detector_set_state(&d, 1, RANK_DEAD, SIGKILL);
    CHECK(failure_detector_is_reporter(&d));
    close_detector(&d);
}

TEST(failure_detector_waits_for_a_rank_that_reports_its_own_failure)
{
    struct failure_detector d;
    int ending;
    open_detector(&d, 4);
    failure_detector_set_state(&d, 2, RANK_ENDING, 80);
    failure_detector_set_state(&d, 1, RANK_DEAD, SIGTERM); /* by the launcher, because of rank 2 */
    CHECK_STATUS(OK, failure_detector_check(&d, &ending));
    CHECK(ending == 80);
    CHECK_STATUS(COMM, failure_detector_check_deaths(&d));
    close_detector(&d);
}

TEST(failure_detector_takes_newer_reports)
{
    struct failure_detector d;
    struct rank_report reports[3] = {0};
    open_detector(&d, 3);
    d.reports[1].beat = d.reports[2].beat = 10;
    reports[0] = (struct rank_report){.beat = 1000, .step = 77}; /* its own */
    reports[1] = (struct rank_report){.beat = 9, .step = 77};    /* older */
    reports[2] = (struct rank_report){.beat = 11, .step = 78};
    CHECK(!failure_detector_merge(&d, reports));
    CHECK(d.reports[0].step == 5 && d.reports[1].step == 5 && d.reports[2].step == 78);
    reports[1] = (struct rank_report){.beat = 9, .state = RANK_DEAD}; /* another rank saw it */
    CHECK(failure_detector_merge(&d, reports) && d.reports[1].state == RANK_DEAD);
    reports[1] = (struct rank_report){.beat = 99, .state = RANK_RUNNING};
    CHECK(!failure_detector_merge(&d, reports) && d.reports[1].state == RANK_DEAD);
    close_detector(&d);
}

TEST(failure_detector_ignores_ranks_that_have_left)
{
    struct failure_detector d;
    open_detector(&d, 3);
    failure_detector_set_state(&d, 1, RANK_LEFT, 0);
    failure_detector_set_state(&d, 2, RANK_LEFT, 0);
    d.silent_s[1] = d.silent_s[2] = 1000;
    CHECK_STATUS(OK, check(&d));
    close_detector(&d);
}
