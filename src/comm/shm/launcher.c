// SPDX-License-Identifier: Apache-2.0
#include "comm/shm/launcher.h"

#include "base/clock.h"
#include "base/signals.h"
#include "base/text.h"
#include "comm/shm/segment.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long the other ranks may report a death, or end in an orderly way after a failure that all
 * ranks know; and how long after a rank has ended the run: then rank 0 may still write its log. */
static const double report_s = 10, end_s = 0.3;

struct launcher {
    struct segment *segment;
    int size, num_running;
    pid_t *pids;       /* by rank; 0: it has ended */
    pid_t group;       /* the process group of all */
    sigset_t signals;  /* that the launcher waits for */
    uint64_t passed;   /* bit n: signal n has been passed on */
    bool has_requeued; /* a rank saved its state on request */
    int failed_rank;   /* the first that did not end well; -1: none */
    pid_t failed_pid;
    int failed_status; /* as of waitpid */
    double kill_at_s;  /* when the others are killed; 0: not yet known */
};

/* --- starting --- */

static void block_signals(struct launcher *l, sigset_t *before)
{
    static const int signals[] = {SIGTERM, SIGINT,  SIGQUIT, SIGUSR1, SIGUSR2,
                                  SIGXCPU, SIGTSTP, SIGCONT, SIGCHLD};
    struct sigaction hangup;
    sigemptyset(&l->signals);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&l->signals, signals[i]);
    if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN) /* as nohup sets it */
        sigaddset(&l->signals, SIGHUP);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &l->signals, before);
}

static void set_number(const char *variable, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(variable, text, 1);
}

/* In the child: it becomes a rank. */
static void become_rank(struct launcher *l, pid_t parent, int rank, int fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_PTRACER, parent); /* Yama: its other children may read this process's memory */
    if (getppid() != parent) raise(SIGKILL); /* it has died before that */
    setpgid(0, l->group);
    signal(SIGTTOU, SIG_IGN); /* `stty tostop` would stop a rank that writes to the terminal */
    set_number(LAUNCHER_RANK, rank), set_number(LAUNCHER_RANKS, l->size);
    set_number(LAUNCHER_SEGMENT, fd);
    segment_unmap(l->segment);
    free(l->pids);
}

/* Starts the ranks; *is_rank: this process is one of them. */
static enum status start_ranks(struct launcher *l, int fd, bool *is_rank)
{
    pid_t parent = getpid();
    fflush(NULL); /* else each rank would write what is buffered */
    for (int r = 0; r < l->size; r++) {
        pid_t child = fork();
        if (child < 0) FAIL(IO, "starting rank %d of %d: %s", r, l->size, strerror(errno));
        *is_rank = !child;
        if (*is_rank) {
            become_rank(l, parent, r, fd);
            return STATUS_OK;
        }
        if (!r) l->group = child;
        setpgid(child, l->group); /* whichever process comes first */
        l->pids[r] = child, l->num_running++;
    }
    return STATUS_OK;
}

/* --- waiting --- */

static void signal_ranks(const struct launcher *l, int number)
{
    for (int r = 0; r < l->size; r++)
        if (l->pids[r]) kill(l->pids[r], number);
}

static void note_end(struct launcher *l, int rank, int status)
{
    bool is_good = WIFEXITED(status) && !WEXITSTATUS(status);
    bool requeued = WIFEXITED(status) && WEXITSTATUS(status) == status_exit_code(STATUS_REQUEUE);
    pid_t pid = l->pids[rank];
    l->pids[rank] = 0, l->num_running--;
    l->has_requeued = l->has_requeued || requeued;
    if (is_good || requeued) return;
    if (l->failed_rank < 0) l->failed_rank = rank, l->failed_pid = pid, l->failed_status = status;
    double at = clock_monotonic_s() + (segment_exit_code(l->segment) ? end_s : report_s);
    if (!(l->kill_at_s > 0) || at < l->kill_at_s) l->kill_at_s = at;
}

static void reap(struct launcher *l)
{
    int status;
    for (int r = 0; r < l->size; r++)
        if (l->pids[r] && waitpid(l->pids[r], &status, WNOHANG) == l->pids[r])
            note_end(l, r, status);
}

static void pass_on(struct launcher *l, int number)
{
    if (number == SIGTSTP) {
        signal_ranks(l, SIGSTOP);
        raise(SIGSTOP); /* until a shell continues the launcher */
        return;
    }
    l->passed |= UINT64_C(1) << number;
    signal_ranks(l, number);
}

static void wait_for_ranks(struct launcher *l)
{
    while (l->num_running) {
        const struct timespec poll = {.tv_nsec = 100000000}; /* for the time of the kill */
        int number = sigtimedwait(&l->signals, NULL, &poll);
        if (number > 0 && number != SIGCHLD) pass_on(l, number);
        reap(l);
        if (l->kill_at_s > 0 && clock_monotonic_s() >= l->kill_at_s) signal_ranks(l, SIGKILL);
    }
}

/* --- how it ended --- */

/* The first status with this exit code, or OK. */
static enum status find_status(int exit_code)
{
    for (enum status s = STATUS_OK; s < STATUS_COUNT; s++)
        if (exit_code && status_exit_code(s) == exit_code) return s;
    return STATUS_OK;
}

/* A failure that a rank has reported.  Several statuses may have its exit code. */
static enum status reported(enum status s)
{
    status_fail(s, __FILE__, __LINE__, "a rank ended with exit code %d", status_exit_code(s));
    status_mark_reported();
    status_mark_shared();
    return s;
}

/* signals_name knows no real-time signals. */
static enum status fail_killed(const struct launcher *l, int number)
{
    const char *name = signals_name(number);
    char unnamed[32];
    snprintf(unnamed, sizeof unnamed, "signal %d", number);
    FAIL(COMM, "rank %d of %d (pid %d) was killed by %s%s; the other ranks were ended",
         l->failed_rank, l->size, (int)l->failed_pid, name ? "SIG" : "", name ? name : unnamed);
}

static enum status judge(struct launcher *l)
{
    int status = l->failed_status, number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    enum status ended = find_status(segment_exit_code(l->segment));
    if (ended) return reported(ended);
    if (l->failed_rank < 0) return l->has_requeued ? reported(STATUS_REQUEUE) : STATUS_OK;
    enum status own = WIFEXITED(status) ? find_status(WEXITSTATUS(status)) : STATUS_OK;
    if (own) return reported(own);
    if (number && l->passed >> number & 1) {
        signal(number, SIG_DFL);
        sigprocmask(SIG_UNBLOCK, &l->signals, NULL);
        raise(number);
    }
    if (number) return fail_killed(l, number);
    FAIL(COMM, "rank %d of %d (pid %d) ended with exit code %d; the other ranks were ended",
         l->failed_rank, l->size, (int)l->failed_pid, WEXITSTATUS(status));
}

enum status launcher_run(int size, bool *is_rank)
{
    struct launcher l = {.size = size, .failed_rank = -1};
    enum status st = STATUS_OK;
    sigset_t before;
    int fd = -1;
    *is_rank = false;
    if (size < 1 || size > LAUNCHER_MAX_RANKS)
        FAIL(CONFIG, "%d ranks: this host can run 1 to %d; start more with mpirun or srun", size,
             LAUNCHER_MAX_RANKS);
    TRY(segment_make(size, &fd));
    TRY_OUT(segment_map(fd, size, &l.segment));
    l.pids = heap((size_t)size * sizeof *l.pids);
    block_signals(&l, &before);
    st = start_ranks(&l, fd, is_rank);
    if (*is_rank) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        return STATUS_OK;
    }
    if (st) signal_ranks(&l, SIGKILL);
    wait_for_ranks(&l);
    if (!st) st = judge(&l);
    sigprocmask(SIG_SETMASK, &before, NULL);
out:
    segment_unmap(l.segment);
    free(l.pids);
    close(fd);
    return st;
}
