// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "runs/runs_fixture.h"

#include <errno.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

TEST(top_prints_one_frame_without_a_terminal)
{
    const char *folder = test_folder(), *run = test_path(folder, "a");
    struct text out = {0}, err = {0};
    fixture_run(folder, "a", 20, 3.5, 0.25);
    CHECK(LLAMERO(&out, &err, "top", run, "--width", "60", "--height", "20") == 0);
    CHECK(!err.len && !strchr(out.data, '\033') && strstr(out.data, "finished"));
    CHECK(strstr(out.data, "step 20/20  100%") && strstr(out.data, "loss 80.0000"));
    int lines = 0;
    for (const char *at = out.data; (at = strchr(at, '\n')); at++) lines++;
    CHECK(lines == 20);
    CHECK(LLAMERO(&out, &err, "top", run, "--once", "--curve", "tokens_seen") == 64);
    CHECK(strstr(err.data, "no such curve; expected one of loss"));
    text_release(&out), text_release(&err);
}

TEST(top_rejects_wrong_arguments)
{
    const char *folder = test_folder(), *run = test_path(folder, "a");
    struct text out = {0}, err = {0};
    fixture_run(folder, "a", 20, 3.5, 0.25);
    CHECK(LLAMERO(&out, &err, "top") == 64);
    CHECK(LLAMERO(&out, &err, "top", test_path(folder, "none")) == 66);
    CHECK(strstr(err.data, "no such folder"));
    CHECK(LLAMERO(&out, &err, "top", folder) == 66);
    CHECK(strstr(err.data, "not a run: expected a dump folder"));
    CHECK_STATUS(OK, file_write(test_path(folder, "metrics.jsonl"), "", 0));
    CHECK(LLAMERO(&out, &err, "top", folder, "--once", "--curve", "loss") == 65);
    CHECK(strstr(err.data, "no step has been logged"));
    CHECK(LLAMERO(&out, &err, "top", run, "--width", "3") == 64);
    CHECK(LLAMERO(&out, &err, "top", run, "--interval", "0") == 64);
    CHECK(LLAMERO(&out, &err, "top", run, "optimizer.lr=1") == 64);
    text_release(&out), text_release(&err);
}

/* Drops what was read before, and reads until the program wrote `what`; false: it ended. */
static bool wait_for(int fd, struct text *out, const char *what)
{
    char bytes[4096];
    text_clear(out);
    while (!(out->data && strstr(out->data, what))) {
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        text_add(out, bytes, (size_t)n);
    }
    return true;
}

TEST(top_shows_a_run_live_and_restores_the_terminal)
{
    struct text out = {0};
    struct termios mode;
    int fd, status;
    const char *folder = test_folder(), *run = test_path(folder, "a");
    const char *program = getenv("LLAMERO") ? getenv("LLAMERO") : "build/llamero";
    test_require_pty();
    fixture_run(folder, "a", 10, 3.5, 0.25);
    alarm(60); /* instead of waiting forever */
    pid_t child = forkpty(&fd, NULL, NULL, &(struct winsize){.ws_row = 24, .ws_col = 80});
    CHECK(child >= 0);
    if (!child) {
        setenv("TERM", "xterm", 1), setenv("LC_ALL", "C", 1), unsetenv("NO_COLOR");
        execl(program, program, "top", run, "--interval", "0.1", (char *)NULL);
        _exit(127);
    }
    CHECK(wait_for(fd, &out, "quit") && strstr(out.data, "\033[?1049h"));
    /* Only what changes is written again. */
    fixture_run(folder, "a", 15, 3.5, 0.25);
    CHECK(wait_for(fd, &out, "75") && !strstr(out.data, "quit") && !strstr(out.data, "\033[2J"));
    CHECK(!ioctl(fd, TIOCSWINSZ, &(struct winsize){.ws_row = 40, .ws_col = 100}));
    CHECK(wait_for(fd, &out, "quit") && strstr(out.data, "\033[2J"));
    CHECK(strstr(out.data, "\033[40;1H"));
    CHECK(write(fd, "\f", 1) == 1 && wait_for(fd, &out, "quit")); /* Ctrl-L */
    CHECK(write(fd, "q", 1) == 1 && wait_for(fd, &out, "\033[?1049l"));
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!tcgetattr(fd, &mode) && mode.c_lflag & ECHO && mode.c_lflag & ICANON);
    close(fd);
    text_release(&out);
}
