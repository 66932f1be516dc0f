// SPDX-License-Identifier: Apache-2.0
#include "base/signals.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* A signal handler can reach only statics; only base may have global state. */
static atomic_int pending, interrupts;
static _Atomic int64_t arrived_ns; /* 0: none has */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Only async-signal-safe calls.  It may run on any thread. */
static void set_pending(int signal)
{
    static const char again[] = "\nsaving the state; Ctrl-C once more ends the run at once\n";
    enum { INTERRUPTS_TO_END = 3 };
    int none = 0, before = errno;
    int64_t never = 0;
    atomic_compare_exchange_strong(&arrived_ns, &never, now_ns());
    atomic_compare_exchange_strong(&pending, &none, signal);
    int count = signal == SIGINT ? atomic_fetch_add(&interrupts, 1) + 1 : 0;
    if (count == INTERRUPTS_TO_END - 1 && write(STDERR_FILENO, again, sizeof again - 1) < 0)
        errno = before; /* the signal counts all the same */
    if (count >= INTERRUPTS_TO_END) {
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigaction(SIGINT, &action, NULL);
        raise(SIGINT); /* once the handler has returned */
    }
    errno = before;
}

void signals_catch(void)
{
    static const int caught[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ, SIGALRM};
    struct sigaction action = {.sa_handler = set_pending, .sa_flags = SA_RESTART}, before;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) sigaction(caught[i], &action, NULL);
    if (!sigaction(SIGHUP, NULL, &before) && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

int signals_pending(void) { return atomic_load_explicit(&pending, memory_order_relaxed); }

double signals_pending_for(void)
{
    int64_t arrived = arrived_ns;
    return arrived ? 1e-9 * (double)(now_ns() - arrived) : 0;
}

void signals_alarm(double seconds)
{
    double whole = floor(seconds);
    struct itimerval timer = {
        .it_value = {.tv_sec = (time_t)whole, .tv_usec = (suseconds_t)(1e6 * (seconds - whole))}};
    if (!(seconds >= 1e-6)) timer.it_value = (struct timeval){.tv_usec = 1};
    setitimer(ITIMER_REAL, &timer, NULL);
}

const char *signals_name(int signal) { return sigabbrev_np(signal); }
