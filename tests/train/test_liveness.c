// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/activity.h"
#include "base/clock.h"
#include "train/liveness.h"

#include <sys/wait.h>
#include <unistd.h>

static const struct comm_config automatic = {.init_timeout_seconds = 600};

/* A step that has taken so long already. */
static void add_step(struct liveness *l, double seconds)
{
    liveness_begin_step(l, l->num_steps + 1);
    l->begin_s -= seconds;
    struct straggler_sample s = liveness_end_step(l);
    CHECK(s.step_s >= seconds && s.busy_s >= seconds);
}

TEST(liveness_limit_is_three_median_steps_and_at_least_20_s)
{
    struct liveness l;
    struct activity a;
    CHECK_STATUS(OK, liveness_open(&l, &automatic, comm_self()));
    CHECK(liveness_limit_s(&l) == 600); /* the first step compiles, allocates, reads ahead ... */
    add_step(&l, 1);
    CHECK(liveness_limit_s(&l) == 18); /* and is reported within 20 s */
    for (int i = 0; i < LIVENESS_STEPS; i++) add_step(&l, i % 5 ? 30 : 3000);
    CHECK_NEAR(liveness_limit_s(&l), 81, 0.1);
    activity_read(NULL, &a);
    CHECK(a.phase == ACTIVITY_reading && a.step == LIVENESS_STEPS + 1);
    CHECK_NEAR(a.limit_s, 81, 0.1);
    liveness_close(&l);
    activity_read(NULL, &a);
    CHECK(a.limit_s == 0);
}

TEST(liveness_limit_can_be_set)
{
    struct liveness l;
    const struct comm_config c = {.init_timeout_seconds = 5, .train_timeout_seconds = 7};
    CHECK_STATUS(OK, liveness_open(&l, &c, comm_self()));
    CHECK(liveness_limit_s(&l) == 5);
    add_step(&l, 100);
    CHECK(liveness_limit_s(&l) == 7);
    activity_enter(ACTIVITY_saving); /* a slow phase has never less */
    struct activity a;
    activity_read(NULL, &a);
    CHECK(a.limit_s == 7);
    liveness_close(&l);
}

TEST(liveness_does_not_count_waiting_as_busy)
{
    struct liveness l;
    CHECK_STATUS(OK, liveness_open(&l, &automatic, comm_self()));
    liveness_begin_step(&l, 1);
    l.begin_s -= 10;
    activity_end_wait(activity_begin_wait() - 4);
    struct straggler_sample s = liveness_end_step(&l);
    CHECK_NEAR(s.busy_s, 6, 0.2);
    liveness_close(&l);
}

/* Runs `body` in a process with limits of a second, which should exit with 82. */
static void check_hang(void (*body)(struct liveness *), const char *said)
{
    int out[2], status;
    char text[4096] = "";
    CHECK(pipe(out) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        static const struct comm_config second = {.init_timeout_seconds = 1};
        struct liveness l;
        dup2(out[1], STDERR_FILENO);
        if (liveness_open(&l, &second, comm_self())) _exit(1);
        body(&l);
        _exit(2);
    }
    close(out[1]);
    size_t len = 0;
    for (ssize_t n; (n = read(out[0], text + len, sizeof text - 1 - len)) > 0;) len += (size_t)n;
    close(out[0]);
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 82) print_error("%s\n", text);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 82);
    if (!strstr(text, said)) print_error("%s\n", text);
    CHECK(strstr(text, said));
}

static void stop_reading(struct liveness *l)
{
    liveness_begin_step(l, 1);
    for (;;) pause();
}

static void spin(struct liveness *l)
{
    liveness_begin_step(l, 1);
    activity_enter(ACTIVITY_computing);
    for (volatile unsigned i = 0;; i++) continue;
}

TEST(liveness_ends_a_process_whose_working_thread_is_stuck)
{
    check_hang(stop_reading, "the run hangs: no progress for ");
    check_hang(stop_reading, "): step 1, reading data");
    check_hang(spin, "): step 1, forward and backward");
}

/* Each part is shorter than the limit, all together are longer. */
TEST(liveness_lets_progress_continue)
{
    static const struct comm_config short_limit = {.init_timeout_seconds = 3};
    struct liveness l;
    CHECK_STATUS(OK, liveness_open(&l, &short_limit, comm_self()));
    double begin = clock_monotonic_s();
    while (clock_monotonic_s() - begin < 4) {
        usleep(10000);
        activity_tick();
    }
    liveness_close(&l);
}
