// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/activity.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct activity now(void)
{
    struct activity a;
    activity_read(NULL, &a);
    return a;
}

static void *run_helper(void *context)
{
    (void)context;
    activity_set_step(99); /* not the working thread */
    activity_enter(ACTIVITY_loading);
    activity_set_limits(1, 1);
    activity_start_collective(1, 1, 1);
    activity_end_wait(activity_begin_wait());
    activity_tick();
    activity_help(ACTIVITY_saving);
    activity_tick();
    return NULL;
}

/* What changed while another thread called everything. */
static uint64_t ticks_of_helper(enum activity_phase phase)
{
    pthread_t thread;
    activity_enter(phase);
    struct activity before = now();
    CHECK(pthread_create(&thread, NULL, run_helper, NULL) == 0);
    pthread_join(thread, NULL);
    struct activity after = now();
    CHECK(after.step == before.step && after.phase == phase && !after.is_waiting);
    CHECK(after.collectives == before.collectives && after.limit_s == before.limit_s);
    return after.progress - before.progress;
}

TEST(activity_is_the_working_threads)
{
    activity_tick(); /* before it begins */
    CHECK(now().progress == 0);
    activity_begin();
    activity_set_limits(20, 600);
    activity_set_step(3);
    CHECK(now().step == 3 && now().progress > 0);
    CHECK(ticks_of_helper(ACTIVITY_computing) == 0);
    CHECK(ticks_of_helper(ACTIVITY_saving) == 1);
    activity_help(ACTIVITY_loading); /* the working thread stays what it is */
    activity_set_step(4);
    CHECK(now().step == 4);
    activity_end();
    CHECK(now().step == 4 && now().phase == ACTIVITY_closing && now().limit_s == 0);
    activity_set_step(5);
    CHECK(now().step == 4);
}

TEST(activity_has_a_limit_for_each_kind_of_phase)
{
    activity_begin();
    activity_set_limits(20, 600);
    CHECK(now().limit_s == 600); /* starting */
    activity_enter(ACTIVITY_reading);
    CHECK(now().limit_s == 20);
    activity_enter(ACTIVITY_saving);
    CHECK(now().limit_s == 600);
    activity_end();
}

TEST(activity_counts_io_as_progress_in_slow_phases_only)
{
    activity_begin();
    activity_enter(ACTIVITY_reading);
    uint64_t before = now().progress;
    activity_tick_io();
    CHECK(now().progress == before);
    activity_enter(ACTIVITY_loading);
    before = now().progress;
    activity_tick_io();
    CHECK(now().progress == before + 1);
    activity_end();
}

TEST(activity_reports_waits_and_collectives)
{
    activity_begin();
    uint64_t before = now().collectives;
    activity_start_collective(2, 64, 8);
    double begin = activity_begin_wait(), waited = activity_waited_s();
    CHECK(now().is_waiting);
    activity_end_wait(begin);
    struct activity a = now();
    CHECK(!a.is_waiting && activity_waited_s() >= waited);
    CHECK(a.collectives == before + 1 && a.kind == 2 && a.bytes == 64 && a.ranks == 8);
    activity_end();
}

TEST(activity_phases_have_texts)
{
    CHECK(!strcmp(activity_phase_text(ACTIVITY_reading), "reading data"));
    CHECK(strstr(activity_phase_text((enum activity_phase)77), "unknown"));
}

/* A thread that holds the lock of stderr, as a working thread that hangs while it logs. */
TEST(activity_exit_in_needs_no_lock)
{
    int out[2], status;
    char line[64] = "";
    CHECK(pipe(out) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        dup2(out[1], STDERR_FILENO);
        activity_exit_in(1, 3, "replaced");
        activity_exit_in(1, 82, "it hangs");
        flockfile(stderr);
        for (;;) pause();
    }
    close(out[1]);
    CHECK(read(out[0], line, sizeof line - 1) > 0);
    CHECK(!strcmp(line, "error: it hangs\n"));
    close(out[0]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 82);
}

TEST(activity_exit_in_can_be_revoked)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        activity_exit_in(1, 3, "revoked");
        activity_exit_in(0, 0, NULL);
        const struct timespec later = {1, 500000000};
        nanosleep(&later, NULL);
        _exit(5);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
}

TEST(activity_can_be_read_by_other_processes)
{
    struct activity a;
    int fd = activity_share();
    CHECK(fd >= 0);
    const struct activity_record *mapped = activity_map(getpid(), fd);
    CHECK(mapped);
    activity_begin();
    activity_set_step(11);
    activity_set_ending();
    activity_read(mapped, &a);
    CHECK(a.step == 11 && a.is_ending);
    activity_end();
    activity_unmap(mapped);
    activity_unmap(NULL);
    CHECK(!activity_map(getpid(), 12345));
}
