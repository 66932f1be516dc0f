// SPDX-License-Identifier: Apache-2.0
#include "base/activity.h"

#include "base/clock.h"
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct activity_record {
    _Atomic int64_t step;
    _Atomic uint64_t progress, collectives, bytes;
    _Atomic double normal_s, slow_s, waited_s;
    atomic_int phase, kind, ranks;
    atomic_bool is_waiting, is_ending;
};

/* A watchdog of the process must find the record; only base may have global state. */
static struct activity_record own;
static struct activity_record *_Atomic record = &own;

/* What the calling thread's calls mean; IDLE: nothing. */
enum { WORKING = ACTIVITY_COUNT, IDLE };
static _Thread_local int role = IDLE;

#define SET(field, value) atomic_store_explicit(&record->field, value, memory_order_relaxed)
#define GET(r, field)     atomic_load_explicit(&(r)->field, memory_order_relaxed)

static bool is_slow(int phase)
{
    static const bool slow[] = {
#define X(name, text, slow) [ACTIVITY_##name] = slow,
        ACTIVITY_LIST(X)
#undef X
    };
    return (unsigned)phase < ACTIVITY_COUNT && slow[phase];
}

const char *activity_phase_text(enum activity_phase phase)
{
    static const char *const texts[] = {
#define X(name, text, slow) [ACTIVITY_##name] = text,
        ACTIVITY_LIST(X)
#undef X
    };
    return (unsigned)phase < ACTIVITY_COUNT ? texts[phase] : "in an unknown phase";
}

void activity_tick(void)
{
    if (role != WORKING && role != GET(record, phase)) return;
    atomic_fetch_add_explicit(&record->progress, 1, memory_order_relaxed);
}

void activity_tick_io(void)
{
    if (is_slow(GET(record, phase))) activity_tick();
}

void activity_begin(void)
{
    role = WORKING;
    SET(step, 0);
    SET(phase, ACTIVITY_starting);
    activity_tick();
}

void activity_end(void)
{
    if (role != WORKING) return;
    activity_set_limits(0, 0);
    SET(phase, ACTIVITY_closing);
    role = IDLE;
}

void activity_help(enum activity_phase phase)
{
    if (role != WORKING) role = (int)phase;
}

void activity_set_limits(double normal_s, double slow_s)
{
    if (role != WORKING) return;
    SET(normal_s, normal_s);
    SET(slow_s, slow_s);
}

void activity_set_step(int64_t step)
{
    if (role != WORKING) return;
    SET(step, step);
    activity_tick();
}

void activity_enter(enum activity_phase phase)
{
    if (role != WORKING) return;
    SET(phase, (int)phase);
    activity_tick();
}

void activity_start_collective(int kind, uint64_t bytes, int ranks)
{
    if (role == WORKING) {
        SET(kind, kind);
        SET(bytes, bytes);
        SET(ranks, ranks);
        SET(collectives, GET(record, collectives) + 1);
    }
    activity_tick();
}

double activity_begin_wait(void)
{
    if (role != WORKING) return 0;
    SET(is_waiting, true);
    return clock_monotonic_s();
}

void activity_end_wait(double begin_s)
{
    if (role == WORKING) {
        SET(is_waiting, false);
        SET(waited_s, GET(record, waited_s) + clock_monotonic_s() - begin_s);
    }
    activity_tick();
}

double activity_waited_s(void) { return GET(record, waited_s); }

void activity_set_ending(void) { SET(is_ending, true); }

void activity_exit(int exit_code) { _exit(exit_code); }

/* For the signal's handler, which may use nothing that takes a lock. */
static char last_line[4096];
static size_t last_line_bytes;
static int last_exit_code;

static void end(int signal)
{
    (void)signal;
    if (write(STDERR_FILENO, last_line, last_line_bytes) < 0) _exit(last_exit_code);
    _exit(last_exit_code);
}

/* One caller at a time. */
static void set_end(unsigned seconds, int exit_code, const char *line)
{
    static timer_t timer; /* of its own: SIGALRM announces the end of a Slurm job (signals.h) */
    static bool has_timer;
    const struct itimerspec due = {.it_value.tv_sec = (time_t)seconds};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMAX};
    if (has_timer) timer_settime(timer, 0, &(struct itimerspec){0}, NULL);
    if (!seconds) return;
    if (!has_timer) has_timer = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
    int len = snprintf(last_line, sizeof last_line, "error: %s\n", line ? line : "");
    last_line_bytes = (size_t)len < sizeof last_line ? (size_t)len : sizeof last_line - 1;
    last_exit_code = exit_code;
    if (has_timer) timer_settime(timer, 0, &due, NULL);
}

void activity_exit_in(unsigned seconds, int exit_code, const char *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* no caller waits while it holds it */
    const struct sigaction action = {.sa_handler = end};
    sigset_t set;
    sigaction(SIGRTMAX, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGRTMAX);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* threads block all signals that they can */
    pthread_mutex_lock(&lock);
    set_end(seconds, exit_code, line);
    pthread_mutex_unlock(&lock);
}

void activity_start_ending(enum status failure)
{
    enum { LOCK_GRACE_S = 2 };
    activity_set_ending();
    activity_exit_in(LOCK_GRACE_S, status_exit_code(failure), status_message());
}

void activity_exit_after(enum status failure)
{
    activity_start_ending(failure);
    log_failure(failure);
    activity_exit(status_exit_code(failure));
}

void activity_read(const struct activity_record *r, struct activity *out)
{
    if (!r) r = record;
    int phase = GET(r, phase);
    *out = (struct activity){
        .step = GET(r, step),
        .phase = (enum activity_phase)phase,
        .is_waiting = GET(r, is_waiting),
        .is_ending = GET(r, is_ending),
        .limit_s = is_slow(phase) ? GET(r, slow_s) : GET(r, normal_s),
        .progress = GET(r, progress),
        .collectives = GET(r, collectives),
        .kind = GET(r, kind),
        .ranks = GET(r, ranks),
        .bytes = GET(r, bytes),
    };
}

int activity_share(void)
{
    int fd = memfd_create("llamero activity", MFD_CLOEXEC);
    if (fd < 0) return -1;
    void *shared = MAP_FAILED;
    if (!ftruncate(fd, sizeof own))
        shared = mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) {
        close(fd);
        return -1;
    }
    record = shared; /* zero, as the record of a process that has not begun */
    return fd;
}

const struct activity_record *activity_map(int pid, int fd)
{
    char path[64];
    struct stat s;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NULL;
    bool fits = !fstat(file, &s) && s.st_size == (off_t)sizeof own;
    void *r = fits ? mmap(NULL, sizeof own, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    close(file);
    return r == MAP_FAILED ? NULL : r;
}

void activity_unmap(const struct activity_record *r)
{
    union {
        const struct activity_record *from;
        void *to;
    } all = {r};
    if (r) munmap(all.to, sizeof *r);
}
