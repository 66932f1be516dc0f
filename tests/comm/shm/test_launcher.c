// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "base/signals.h"
#include "comm/shm/launcher.h"
#include "comm/shm/segment.h"
#include "comm/shm/shm.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A launcher in a child of this process, whose ranks run `body`.  Ranks write to `out`. */
struct launched {
    pid_t pid;
    int out;
};

static struct launched start(int size, int (*body)(int rank, int out))
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        bool is_rank;
        close(ends[0]);
        enum status st = launcher_run(size, &is_rank);
        if (is_rank) _exit(body(atoi(getenv(LAUNCHER_RANK)), ends[1]));
        dprintf(ends[1], "%s", st ? status_message() : "");
        _exit(status_exit_code(st));
    }
    close(ends[1]);
    return (struct launched){pid, ends[0]};
}

/* Reads until all writers have ended, or `bytes` have come. */
static void read_bytes(const struct launched *l, char *text, size_t bytes)
{
    size_t len = 0;
    for (ssize_t n; len < bytes && (n = read(l->out, text + len, bytes - len)) > 0;)
        len += (size_t)n;
    text[len] = 0;
}

static int end(const struct launched *l, char text[STATUS_TEXT])
{
    int status;
    read_bytes(l, text, STATUS_TEXT - 1);
    CHECK(waitpid(l->pid, &status, 0) == l->pid);
    close(l->out);
    return status;
}

static int say_rank(int rank, int out)
{
    dprintf(out, "%d", rank);
    return atoi(getenv(LAUNCHER_RANKS)) == 3 ? 0 : 1;
}

TEST(launcher_starts_every_rank_once)
{
    char text[STATUS_TEXT];
    struct launched l = start(3, say_rank);
    CHECK(end(&l, text) == 0 && strlen(text) == 3);
    for (int r = 0; r < 3; r++) CHECK(strchr(text, '0' + r));
}

static int requeue(int rank, int out)
{
    (void)out;
    return rank == 1 ? status_exit_code(STATUS_REQUEUE) : 0;
}

TEST(launcher_ends_as_its_ranks_do)
{
    char text[STATUS_TEXT];
    struct launched l = start(2, requeue);
    int status = end(&l, text);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 75);
    CHECK(!strcmp(text, "a rank ended with exit code 75"));
}

static int fail_alone(int rank, int out)
{
    (void)out;
    if (rank == 1) shm_abort(80);
    pause();
    return 0;
}

TEST(launcher_ends_the_others_when_a_rank_ends_the_run)
{
    char text[STATUS_TEXT];
    double begin = clock_monotonic_s();
    struct launched l = start(3, fail_alone);
    int status = end(&l, text);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 80);
    CHECK(clock_monotonic_s() - begin < 5);
}

static int die(int rank, int out)
{
    (void)out;
    if (rank == 1) raise(SIGKILL);
    return 0;
}

TEST(launcher_names_a_rank_that_died_unreported)
{
    char text[STATUS_TEXT];
    struct launched l = start(2, die);
    int status = end(&l, text);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 81);
    CHECK(strstr(text, "rank 1 of 2 (pid ") && strstr(text, "was killed by SIGKILL"));
}

static int die_by_a_real_time_signal(int rank, int out)
{
    (void)out;
    if (rank == 1) raise(40);
    return 0;
}

TEST(launcher_names_a_signal_without_a_name_by_its_number)
{
    char text[STATUS_TEXT];
    struct launched l = start(2, die_by_a_real_time_signal);
    int status = end(&l, text);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 81);
    CHECK(strstr(text, "was killed by signal 40; the other ranks were ended"));
}

static int exit_with_3(int rank, int out)
{
    (void)out;
    return rank == 1 ? 3 : 0;
}

TEST(launcher_names_a_rank_with_an_unknown_exit_code)
{
    char text[STATUS_TEXT];
    struct launched l = start(2, exit_with_3);
    int status = end(&l, text);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 81);
    CHECK(strstr(text, "rank 1 of 2 (pid ") && strstr(text, "ended with exit code 3"));
}

static int wait_for_signal(int rank, int out)
{
    signals_catch();
    (void)rank;
    if (write(out, "r", 1) != 1) return 1;
    while (!signals_pending()) poll(NULL, 0, 1);
    return signals_pending() == SIGUSR1 ? status_exit_code(STATUS_REQUEUE) : 1;
}

TEST(launcher_passes_signals_on)
{
    char text[STATUS_TEXT];
    struct launched l = start(2, wait_for_signal);
    read_bytes(&l, text, 2);
    kill(l.pid, SIGUSR1);
    int status = end(&l, text);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 75);
}

static int wait_forever(int rank, int out)
{
    char pid[16];
    (void)rank;
    snprintf(pid, sizeof pid, "%7d ", (int)getpid());
    if (write(out, pid, 8) != 8) return 1;
    for (;;) pause();
}

TEST(launcher_ends_by_the_signal_that_ended_its_ranks)
{
    char text[STATUS_TEXT];
    struct launched l = start(2, wait_forever);
    read_bytes(&l, text, 16);
    kill(l.pid, SIGTERM);
    int status = end(&l, text);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

/* The kernel kills the ranks: the pipe, which they hold open, ends. */
TEST(ranks_end_when_the_launcher_is_killed)
{
    char text[STATUS_TEXT];
    struct launched l = start(2, wait_forever);
    read_bytes(&l, text, 16);
    kill(l.pid, SIGKILL);
    int status = end(&l, text);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !text[0]);
}

TEST(launcher_rejects_more_ranks_than_a_host_can_run)
{
    bool is_rank = true;
    CHECK_STATUS(CONFIG, launcher_run(LAUNCHER_MAX_RANKS + 1, &is_rank));
    CHECK_MESSAGE("257 ranks: this host can run 1 to 256");
    CHECK(!is_rank);
}
