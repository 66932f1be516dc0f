// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/log.h"
#include "base/progress.h"
#include "base/thread.h"

#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <unistd.h>

static void check_line(enum progress_unit unit, double done, double total, double seconds,
                       const char *want)
{
    struct text t = {0};
    progress_describe(&t, "x", &(struct progress_amount){unit, done, total, seconds});
    if (strcmp(t.data, want)) fail_msg("\"%s\", expected \"%s\"", t.data, want);
    text_release(&t);
}

TEST(progress_describes_share_amount_rate_and_time_left)
{
    check_line(PROGRESS_BYTES, 1.2e9, 2.7e10, 4, "x: 4 %, 1.2 of 27 GB, 300 MB/s, 86 s left");
    check_line(PROGRESS_BYTES, 5e6, 0, 2, "x: 5000 KB, 2500 KB/s");
    check_line(PROGRESS_TOKENS, 250, 1000, 100,
               "x: 25 %, 250 of 1000 tokens, 2.5 tokens/s, 5 min left");
    check_line(PROGRESS_ROWS, 2e6, 4e7, 1000, "x: 5 %, 2.0 of 40 M rows, 2000 rows/s, 5.3 h left");
    check_line(PROGRESS_ITEMS, 3, 2, 1, "x: 3.0 items, 3.0 items/s"); /* the total was too low */
    check_line(PROGRESS_ITEMS, 0, 2, 0, "x: 0 %, 0 of 2.0 items, 0 items/s");
}

static void *add_much(void *unused)
{
    progress_add(1e6);
    progress_end();
    return unused;
}

/* A terminal of 40 columns. */
TEST(progress_is_a_line_on_the_terminal_that_log_lines_do_not_break)
{
    int main_fd, fd, old = dup(STDERR_FILENO);
    struct winsize size = {.ws_row = 5, .ws_col = 40};
    char got[4096];
    size_t len = 0;
    pthread_t other;
    test_require_pty();
    CHECK(!setenv("TERM", "xterm", 1));
    CHECK(old >= 0 && openpty(&main_fd, &fd, NULL, NULL, &size) == 0);
    CHECK(fcntl(main_fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(dup2(fd, STDERR_FILENO) >= 0);
    progress_begin("verify", PROGRESS_ITEMS, 100);
    progress_add(1); /* too early to show */
    CHECK(pthread_create(&other, NULL, add_much, NULL) == 0 && !pthread_join(other, NULL));
    CHECK(usleep(600000) == 0 && usleep(500000) == 0);
    progress_add(1);
    log_line(LOG_INFO, "a log line");
    progress_end();
    progress_add(50);
    dup2(old, STDERR_FILENO);
    for (ssize_t n; (n = read(main_fd, got + len, sizeof got - 1 - len)) > 0;) len += (size_t)n;
    got[len] = 0;
    const char *first = strstr(got, "verify: 2 %, 2.0 of 100 items, "),
               *log = strstr(got, "a log line");
    CHECK(first && log && first < log);
    CHECK(!strncmp(log - 4, "\r\033[K", 4));
    CHECK(strstr(log, "\r\n\r\033[Kverify: 2 %"));
    CHECK(!strcmp(got + len - 4, "\r\033[K")); /* cleared */
    for (const char *at = first; *at && *at != '\r'; at++) CHECK(at - first < 40);
    close(old), close(fd), close(main_fd);
}
