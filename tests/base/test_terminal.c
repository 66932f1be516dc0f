// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/terminal.h"

#include <errno.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

TEST(terminal_without_a_name_is_dumb)
{
    setenv("TERM", "xterm", 1);
    CHECK(!terminal_is_dumb());
    setenv("TERM", "dumb", 1);
    CHECK(terminal_is_dumb());
    unsetenv("TERM");
    CHECK(terminal_is_dumb());
}

/* Adds what the child writes until it wrote `what`, or ended. */
static void read_until(int fd, struct text *out, const char *what)
{
    char bytes[4096];
    ssize_t n;
    while (!(out->data && strstr(out->data, what))) {
        n = read(fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        text_add(out, bytes, (size_t)n);
    }
}

static void show_and_wait(void)
{
    if (terminal_enter_raw()) _exit(1);
    terminal_enter_screen();
    for (;;)
        if (terminal_read_byte(10) == 'x') exit(7);
}

/* Opens the screen in a terminal of its own, ends the child in some way, and checks that the
 * terminal is as before. */
static void check_restored(void (*end)(pid_t child, int fd), int want)
{
    struct termios before, during, after;
    struct text out = {0};
    int fd, status;
    alarm(60); /* instead of waiting forever */
    pid_t child = forkpty(&fd, NULL, NULL, &(struct winsize){.ws_row = 24, .ws_col = 80});
    CHECK(child >= 0);
    if (!child) {
        if (tcgetattr(STDIN_FILENO, &before)) _exit(2);
        setenv("TERM", "xterm", 1);
        show_and_wait();
    }
    CHECK(!tcgetattr(fd, &before));
    read_until(fd, &out, "\033[?1049h");
    CHECK(!tcgetattr(fd, &during) && !(during.c_lflag & (ECHO | ICANON | ISIG)));
    end(child, fd);
    read_until(fd, &out, "\033[?1049l");
    CHECK(strstr(out.data, "\033[?25h"));
    CHECK(waitpid(child, &status, 0) == child && status == want);
    CHECK(!tcgetattr(fd, &after) && after.c_lflag & ECHO && after.c_lflag & ICANON);
    close(fd);
    text_release(&out);
}

static void send_term(pid_t child, int fd)
{
    (void)fd;
    kill(child, SIGTERM);
}

static void send_key(pid_t child, int fd)
{
    (void)child;
    CHECK(write(fd, "x", 1) == 1);
}

TEST(terminal_is_restored_by_a_signal_and_at_exit)
{
    check_restored(send_term, SIGTERM);
    check_restored(send_key, 7 << 8);
}
