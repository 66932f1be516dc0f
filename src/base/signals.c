// SPDX-License-Identifier: Apache-2.0
#include "base/signals.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

/* A signal handler can reach only statics; only base may have global state. */
static atomic_int pending;
static _Atomic double arrived_s; /* 0: none has */

static void set_pending(int signal)
{
    int none = 0;
    double never = 0;
    atomic_compare_exchange_strong(&arrived_s, &never, clock_monotonic_s());
    atomic_compare_exchange_strong(&pending, &none, signal);
}

static void *wait_for_signals(void *context)
{
    enum { INTERRUPTS_TO_WARN = 2 };
    sigset_t *set = context, interrupt;
    int signal, interrupts = 0;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    while (!sigwait(set, &signal)) {
        set_pending(signal);
        interrupts += signal == SIGINT;
        if (signal != SIGINT || interrupts < INTERRUPTS_TO_WARN) continue;
        /* The kernel ends the process at the next one, even if the log's lock is never released. */
        sigdelset(set, SIGINT);
        pthread_sigmask(SIG_UNBLOCK, &interrupt, NULL);
        log_line(LOG_WARN,
                 "the program is about to end and keeps what it has done; Ctrl-C once more "
                 "ends it at once");
    }
    return NULL;
}

void signals_catch(void)
{
    static const int caught[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU, SIGALRM};
    static sigset_t set; /* the thread's, to the end of the process */
    const struct sigaction fatal = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN};
    const struct sigaction flag = {.sa_handler = set_pending, .sa_flags = SA_RESTART};
    struct sigaction before;
    pthread_t thread;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        sigaction(caught[i], &fatal, NULL); /* a shell's background jobs ignore SIGINT */
        sigaddset(&set, caught[i]);
    }
    if (!sigaction(SIGHUP, NULL, &before) && before.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &flag, NULL); /* of the thread that writes, within its call of write */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (thread_start_foreground(&thread, wait_for_signals, &set) == STATUS_OK)
        pthread_detach(thread);
    else
        pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* the system's defaults: they end the process */
}

int signals_pending(void) { return atomic_load_explicit(&pending, memory_order_relaxed); }

void signals_raise_pending(void)
{
    const struct sigaction fatal = {.sa_handler = SIG_DFL};
    int signal = signals_pending();
    sigset_t set;
    if (!signal) return;
    sigemptyset(&set);
    sigaddset(&set, signal);
    sigaction(signal, &fatal, NULL); /* SIGXFSZ has a handler */
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(signal);
}

double signals_pending_for(void)
{
    double arrived = arrived_s;
    return arrived > 0 ? clock_monotonic_s() - arrived : 0;
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
