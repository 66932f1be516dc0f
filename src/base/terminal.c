// SPDX-License-Identifier: Apache-2.0
#include "base/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* The terminal belongs to the process, and a signal handler can reach only statics; only base may
 * have global state. */
static struct {
    struct termios before, raw;
    atomic_bool wants_raw, is_raw; /* requested; set on the terminal */
    atomic_bool wants_screen, screen_is_open;
    atomic_bool has_changed;
    bool restores_at_exit;
} terminal;

/* With the system's default handlers these end the process. */
static const int deadly[] = {SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGABRT,
                             SIGSEGV, SIGBUS,  SIGFPE, SIGILL,  SIGXCPU, SIGXFSZ};
static const int others[] = {SIGTSTP, SIGCONT, SIGWINCH};
enum { NUM_DEADLY = sizeof deadly / sizeof *deadly, NUM_OTHERS = sizeof others / sizeof *others };

bool terminal_is(int fd) { return isatty(fd); }

bool terminal_is_dumb(void)
{
    const char *term = getenv("TERM");
    return !term || !*term || !strcmp(term, "dumb");
}

struct terminal_size terminal_size(int fd)
{
    struct winsize w = {0};
    if (ioctl(fd, TIOCGWINSZ, &w)) return (struct terminal_size){0};
    return (struct terminal_size){w.ws_row, w.ws_col};
}

/* Async-signal-safe, as are all functions from here to handle_change. */
static void print(const char *escape)
{
    size_t left = strlen(escape);
    while (left) {
        ssize_t n = write(STDOUT_FILENO, escape, left);
        if (n < 0 && errno != EINTR) return;
        if (n > 0) escape += n, left -= (size_t)n;
    }
}

/* SIGTTOU is blocked, as it would stop a process in the background.  At once, as a terminal whose
 * output is stopped never drains. */
static bool set_mode(const struct termios *mode)
{
    sigset_t ttou, before;
    int bad;
    sigemptyset(&ttou);
    sigaddset(&ttou, SIGTTOU);
    pthread_sigmask(SIG_BLOCK, &ttou, &before);
    do bad = tcsetattr(STDIN_FILENO, TCSANOW, mode);
    while (bad && errno == EINTR);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !bad;
}

static void restore(void)
{
    int error = errno;
    if (atomic_exchange(&terminal.screen_is_open, false)) print("\033[?25h\033[?1049l");
    if (atomic_exchange(&terminal.is_raw, false)) set_mode(&terminal.before);
    errno = error;
}

/* Each flag is set before the terminal changes: a signal in between then restores too much rather
 * than too little. */
static void apply(void)
{
    int error = errno;
    if (terminal.wants_raw && !atomic_exchange(&terminal.is_raw, true)) set_mode(&terminal.raw);
    if (terminal.wants_screen && !atomic_exchange(&terminal.screen_is_open, true))
        print("\033[?1049h\033[?25l\033[2J\033[H");
    errno = error;
}

static void set_handler(int signal, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigfillset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

/* Raises a signal that is blocked now, with the system's default for it. */
static void raise_default(int signal)
{
    sigset_t set, before;
    set_handler(signal, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, signal);
    raise(signal);
    pthread_sigmask(SIG_UNBLOCK, &set, &before); /* here it ends or stops the process */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void handle_end(int signal)
{
    restore();
    raise_default(signal);
}

static bool in_foreground(void) { return tcgetpgrp(STDIN_FILENO) == getpgrp(); }

static void handle_change(int signal)
{
    int error = errno;
    if (signal == SIGTSTP) {
        restore();
        raise_default(SIGTSTP);
        set_handler(SIGTSTP, handle_change);
    }
    if (signal == SIGCONT) terminal.is_raw = false; /* a shell sets its own mode */
    if (signal != SIGWINCH && in_foreground()) apply();
    terminal.has_changed = true;
    errno = error;
}

static void handle_signals(bool on)
{
    for (int i = 0; i < NUM_DEADLY + NUM_OTHERS; i++) {
        int signal = i < NUM_DEADLY ? deadly[i] : others[i - NUM_DEADLY];
        void (*ours)(int) = i < NUM_DEADLY ? handle_end : handle_change;
        struct sigaction now;
        if (sigaction(signal, NULL, &now) || now.sa_flags & SA_SIGINFO) continue;
        if (now.sa_handler == (on ? SIG_DFL : ours)) set_handler(signal, on ? ours : SIG_DFL);
    }
}

enum status terminal_enter_raw(void)
{
    if (terminal.wants_raw) return STATUS_OK;
    if (!terminal_is(STDIN_FILENO)) FAIL(USAGE, "stdin must be a terminal");
    if (tcgetattr(STDIN_FILENO, &terminal.before))
        FAIL(IO, "reading the terminal's settings: %s", strerror(errno));
    terminal.raw = terminal.before;
    terminal.raw.c_iflag &=
        (tcflag_t) ~(IGNBRK | BRKINT | PARMRK | ISTRIP | INLCR | IGNCR | ICRNL | IXON);
    terminal.raw.c_lflag &= (tcflag_t) ~(ECHO | ECHONL | ICANON | ISIG | IEXTEN);
    terminal.raw.c_cc[VMIN] = 1, terminal.raw.c_cc[VTIME] = 0;
    if (!terminal.restores_at_exit) atexit(restore), at_quick_exit(restore);
    terminal.restores_at_exit = true;
    handle_signals(true);
    terminal.wants_raw = true;
    terminal.is_raw = true;
    if (set_mode(&terminal.raw)) return STATUS_OK;
    int error = errno;
    terminal_leave_raw();
    FAIL(IO, "setting the terminal to raw mode: %s", strerror(error));
}

void terminal_leave_raw(void)
{
    terminal.wants_screen = false;
    terminal.wants_raw = false;
    restore();
    handle_signals(false);
}

bool terminal_is_raw(void) { return terminal.is_raw; }

void terminal_enter_screen(void)
{
    BUG_IF(!terminal.wants_raw);
    terminal.wants_screen = true;
    apply();
}

void terminal_leave_screen(void)
{
    terminal.wants_screen = false;
    if (atomic_exchange(&terminal.screen_is_open, false)) print("\033[?25h\033[?1049l");
}

void terminal_suspend(void) { raise(SIGTSTP); }

bool terminal_has_changed(void) { return atomic_exchange(&terminal.has_changed, false); }

/* The signals of a change are unblocked only inside ppoll: one that arrives before it is noticed
 * here, and one that arrives within interrupts it. */
static int wait_for_byte(double seconds)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    double limit = seconds < 1e6 ? seconds : 1e6;
    struct timespec timeout = {.tv_sec = (time_t)limit};
    timeout.tv_nsec = (long)(1e9 * (limit - (double)timeout.tv_sec));
    sigset_t changes, before;
    sigemptyset(&changes);
    for (int i = 0; i < NUM_OTHERS; i++) sigaddset(&changes, others[i]);
    pthread_sigmask(SIG_BLOCK, &changes, &before);
    int ready = 0;
    if (!terminal.has_changed) ready = ppoll(&p, 1, seconds < 0 ? NULL : &timeout, &before);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return ready;
}

int terminal_read_byte(double seconds)
{
    unsigned char byte;
    int ready = wait_for_byte(seconds);
    if (ready <= 0) return !ready || errno == EINTR ? TERMINAL_NONE : TERMINAL_END;
    ssize_t n = read(STDIN_FILENO, &byte, 1);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return TERMINAL_NONE;
    return n == 1 ? byte : TERMINAL_END;
}
