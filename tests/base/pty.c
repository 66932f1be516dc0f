// SPDX-License-Identifier: Apache-2.0
#include "base/pty.h"

#include "test.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_S = 60 };

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); }

static void default_signals(void)
{
    for (int i = 1; i < 32; i++) signal(i, SIG_DFL);
}

static int wait_for(pid_t child)
{
    int code;
    while (waitpid(child, &code, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
}

/* The leader lives until the test closes `hold`, so that the terminal's mode can be read. */
static void lead(const char *name, int tell, int hold, int (*body)(void *), void *argument)
{
    const struct winsize size = {.ws_row = 24, .ws_col = 80};
    char byte;
    default_signals();
    setsid();
    int fd = open(name, O_RDWR); /* becomes the controlling terminal */
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) < 0 || ioctl(fd, TIOCSWINSZ, &size)) _exit(99);
    for (int i = 0; i < 3; i++) dup2(fd, i);
    if (fd > 2) close(fd);
    signal(SIGTTOU, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    pid_t job = fork();
    if (!job) {
        setpgid(0, 0);
        tcsetpgrp(0, getpid());
        default_signals();
        close(tell), close(hold);
        setenv("TERM", "xterm", 1);
        setenv("LC_ALL", "C.UTF-8", 1);
        exit(body(argument));
    }
    setpgid(job, job);
    if (write(tell, &job, sizeof job) != sizeof job) _exit(99);
    int code = wait_for(job);
    if (write(tell, &code, sizeof code) != sizeof code) _exit(99);
    while (read(hold, &byte, 1) < 0 && errno == EINTR) {
    }
    _exit(0);
}

static int tells[2], holds[2];

void pty_start(struct pty *p, int (*body)(void *), void *argument)
{
    test_require_pty();
    *p = (struct pty){.fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
    CHECK(p->fd >= 0 && !grantpt(p->fd) && !unlockpt(p->fd));
    CHECK(!pipe2(tells, O_CLOEXEC) && !pipe2(holds, O_CLOEXEC));
    char *name = heap_strdup(ptsname(p->fd));
    text_adds(&p->seen, "");
    fflush(NULL);
    p->leader = fork();
    CHECK(p->leader >= 0);
    if (!p->leader) {
        close(tells[0]), close(holds[1]), close(p->fd);
        lead(name, tells[1], holds[0], body, argument);
    }
    close(tells[1]), close(holds[0]);
    free(name);
    CHECK(read(tells[0], &p->job, sizeof p->job) == sizeof p->job);
}

static int execute(void *argument)
{
    char **argv = argument;
    execvp(argv[0], argv);
    return 127;
}

void pty_start_program(struct pty *p, const char *const *argv)
{
    pty_start(p, execute, (void *)(uintptr_t)argv);
}

void pty_type(const struct pty *p, const char *keys)
{
    size_t len = strlen(keys);
    CHECK(write(p->fd, keys, len) == (ssize_t)len);
}

/* Reads what is available within some milliseconds; false: nothing was. */
static bool read_some(struct pty *p, int milliseconds)
{
    struct pollfd f = {.fd = p->fd, .events = POLLIN};
    char bytes[4096];
    if (poll(&f, 1, milliseconds) <= 0) return false;
    ssize_t n = read(p->fd, bytes, sizeof bytes);
    if (n > 0) text_add(&p->seen, bytes, (size_t)n);
    if (n <= 0) nap();
    return n > 0;
}

static bool is_over(void)
{
    struct pollfd f = {.fd = tells[0], .events = POLLIN};
    return poll(&f, 1, 0) == 1;
}

bool pty_shows(struct pty *p, size_t from, const char *text)
{
    double end = clock_monotonic_s() + WAIT_S;
    while (clock_monotonic_s() < end) {
        if (from <= p->seen.len && strstr(p->seen.data + from, text)) return true;
        bool over = is_over();
        if (!read_some(p, 20) && over) break;
    }
    if (from <= p->seen.len && strstr(p->seen.data + from, text)) return true;
    print_error("\"%s\" is not in: %s\n", text, p->seen.data + from);
    return false;
}

static bool is_raw(const struct pty *p)
{
    struct termios mode;
    CHECK(!tcgetattr(p->fd, &mode));
    return !(mode.c_lflag & (ICANON | ECHO));
}

bool pty_becomes_raw(struct pty *p, bool raw)
{
    double end = clock_monotonic_s() + WAIT_S;
    while (is_raw(p) != raw && clock_monotonic_s() < end) read_some(p, 5);
    return is_raw(p) == raw;
}

bool pty_is_stopped(struct pty *p)
{
    double end = clock_monotonic_s() + WAIT_S;
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)p->job);
    while (state != 'T' && clock_monotonic_s() < end) {
        FILE *f = fopen(path, "r");
        if (!f || fscanf(f, "%*d %*s %c", &state) != 1) state = 0;
        if (f) fclose(f);
        read_some(p, 5);
    }
    return state == 'T';
}

int pty_finish(struct pty *p, bool *raw)
{
    double end = clock_monotonic_s() + WAIT_S;
    int code = -1;
    while (!is_over() && clock_monotonic_s() < end) read_some(p, 20);
    if (!is_over()) kill(p->job, SIGKILL);
    CHECK(read(tells[0], &code, sizeof code) == sizeof code);
    while (read_some(p, 0)) {
    }
    *raw = is_raw(p);
    close(tells[0]), close(holds[1]);
    wait_for(p->leader);
    close(p->fd);
    return code;
}
