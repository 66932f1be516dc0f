// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "test.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK_CHILD(body, argument)                                                                \
    do {                                                                                           \
        int status_ = test_in_child(body, argument);                                               \
        if (status_) print_error("%s(%d): wait status %#x\n", #body, argument, (unsigned)status_); \
        CHECK(!status_);                                                                           \
    } while (0)

static enum status catch_three(int signal)
{
    signals_catch();
    RANK_CHECK(!signals_pending() && !(signals_pending_for() > 0));
    test_raise(signal);
    RANK_CHECK(signals_pending() == signal);
    test_raise(signal);
    test_raise(SIGTERM);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    RANK_CHECK(signals_pending() == signal);
    RANK_CHECK(signals_pending_for() > 0 && signals_pending_for() < 10);
    return STATUS_OK;
}

TEST(the_first_signal_is_pending_and_more_change_nothing)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        CHECK_CHILD(catch_three, signals[i]);
    CHECK(!strcmp(signals_name(SIGTERM), "TERM"));
}

static enum status interrupt(int times)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    RANK_CHECK(null >= 0 && dup2(null, STDERR_FILENO) >= 0);
    signals_catch();
    for (int i = 0; i < times; i++) { /* apart, as a pending signal is not counted twice */
        test_raise(SIGINT);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    RANK_CHECK(signals_pending() == SIGINT);
    return STATUS_OK;
}

TEST(the_third_interrupt_from_the_keyboard_ends_the_process)
{
    CHECK_CHILD(interrupt, 2);
    int status = test_in_child(interrupt, 200); /* on a busy machine some may still be merged */
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

static void *log_one_line(void *unused)
{
    log_line(LOG_INFO, "to a pipe that nobody reads");
    return unused;
}

/* A thread hangs while it holds the log's lock. */
static enum status interrupt_a_hanging_log(int unused)
{
    pthread_t thread;
    int ends[2];
    (void)unused;
    RANK_CHECK(!pipe2(ends, O_CLOEXEC | O_NONBLOCK) && dup2(ends[1], STDERR_FILENO) >= 0);
    while (write(ends[1], "x", 1) == 1) {
    }
    fcntl(ends[1], F_SETFL, 0);
    signals_catch();
    RANK_CHECK(!pthread_create(&thread, NULL, log_one_line, NULL));
    for (int i = 0; i < 200; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        test_raise(SIGINT);
    }
    return STATUS_OK;
}

TEST(the_third_interrupt_ends_the_process_even_if_the_log_hangs)
{
    int status = test_in_child(interrupt_a_hanging_log, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

static enum status hang_up(int unused)
{
    (void)unused;
    signal(SIGHUP, SIG_IGN);
    signals_catch();
    kill(getpid(), SIGHUP);
    test_raise(SIGUSR1);
    RANK_CHECK(signals_pending() == SIGUSR1);
    return STATUS_OK;
}

TEST(a_hang_up_stays_ignored_under_nohup) { CHECK_CHILD(hang_up, 0); }

static enum status write_to_closed_pipe(int unused)
{
    int ends[2];
    (void)unused;
    signals_catch();
    RANK_CHECK(!pipe2(ends, O_CLOEXEC) && !close(ends[0]));
    RANK_CHECK(write(ends[1], "x", 1) == -1 && errno == EPIPE);
    RANK_CHECK(!signals_pending());
    return STATUS_OK;
}

TEST(writing_to_a_closed_pipe_is_an_error_and_no_signal) { CHECK_CHILD(write_to_closed_pipe, 0); }

static const char *limited;

static enum status write_past_limit(int unused)
{
    const struct rlimit limit = {10, 10};
    (void)unused;
    signals_catch();
    int fd = open(limited, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    RANK_CHECK(fd >= 0 && !setrlimit(RLIMIT_FSIZE, &limit));
    RANK_CHECK(write(fd, "0123456789abc", 13) == 10 && !signals_pending());
    RANK_CHECK(write(fd, "abc", 3) == -1 && errno == EFBIG);
    RANK_CHECK(signals_pending() == SIGXFSZ);
    return STATUS_OK;
}

TEST(writing_past_the_limit_of_files_is_an_error_and_a_pending_signal)
{
    limited = test_path(test_folder(), "limited");
    CHECK_CHILD(write_past_limit, 0);
}

static enum status wait_for_alarm(int milliseconds)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    double begin = clock_monotonic_s(), seconds = 1e-3 * milliseconds;
    signals_catch();
    signals_alarm(1000);
    signals_alarm(seconds); /* replaces it */
    while (!signals_pending() && clock_monotonic_s() < begin + 30) nanosleep(&ms, NULL);
    RANK_CHECK(clock_monotonic_s() >= begin + seconds);
    RANK_CHECK(signals_pending() == SIGALRM);
    return STATUS_OK;
}

TEST(an_alarm_becomes_pending_at_its_time)
{
    CHECK_CHILD(wait_for_alarm, 50);
    CHECK_CHILD(wait_for_alarm, 0);
    CHECK_CHILD(wait_for_alarm, -1000);
}

static enum status find_unblocked(int unused)
{
    sigset_t blocked;
    (void)unused;
    signals_catch();
    RANK_CHECK(!pthread_sigmask(SIG_BLOCK, NULL, &blocked));
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        RANK_CHECK(sigismember(&blocked, signals[i]));
    return STATUS_OK;
}

TEST(no_signal_interrupts_a_thread_that_computes) { CHECK_CHILD(find_unblocked, 0); }
