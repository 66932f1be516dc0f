// SPDX-License-Identifier: Apache-2.0
#include "base/full_disk.h"
#include "test.h"

#include "base/file.h"
#include "base/log.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <unistd.h>

/* Captures in `out` what `run` writes to stderr. */
static void capture_stderr(void (*run)(void), struct text *out)
{
    char *path = file_join(test_folder(), "stderr");
    fflush(stderr);
    int old = dup(STDERR_FILENO), fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(old >= 0 && fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    run();
    fflush(stderr);
    dup2(old, STDERR_FILENO);
    close(old);
    close(fd);
    CHECK_STATUS(OK, file_read(path, 1 << 20, out));
    free(path);
}

static void three_lines(void)
{
    log_line(LOG_INFO, "step %d", 5);
    log_line(LOG_WARN, "slow %s", "disk");
    log_line(LOG_ERROR, "no %s", "file");
}

static void lines_of_a_rank(void)
{
    log_set_rank(0);
    log_line(LOG_WARN, "slow %s", "disk");
    log_rank_warning(2, "node7", "is %s", "slow");
    log_set_rank(-1);
}

TEST(log_warnings_name_one_rank)
{
    struct text got = {0};
    capture_stderr(lines_of_a_rank, &got);
    CHECK(!strncmp(got.data, "warning: rank 0 on ", 19));
    CHECK(strstr(got.data, ": slow disk\nwarning: rank 2 on node7 is slow\n"));
    text_release(&got);
}

static void three_quiet_lines(void)
{
    log_set_quiet(true);
    three_lines();
    log_set_quiet(false);
}

TEST(log_lines_go_to_stderr_with_their_level)
{
    struct text got = {0};
    capture_stderr(three_lines, &got);
    CHECK(!strcmp(got.data, "step 5\nwarning: slow disk\nerror: no file\n"));
    text_release(&got);
}

TEST(log_quiet_lines_still_go_to_the_file)
{
    struct text got = {0}, kept = {0};
    char *path = file_join(test_folder(), "log.txt");
    CHECK_STATUS(OK, log_open(path));
    capture_stderr(three_quiet_lines, &got);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK(!strcmp(got.data, "warning: slow disk\nerror: no file\n"));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &kept));
    CHECK(strstr(kept.data, " step 5\n") && strstr(kept.data, " warning: slow disk\n"));
    CHECK(kept.data[4] == '-' && kept.data[13] == ':');
    free(path);
    text_release(&got);
    text_release(&kept);
}

TEST(log_open_failure_names_the_file)
{
    char *path = file_join(test_folder(), "no/such/folder/log.txt");
    CHECK_STATUS(IO, log_open(path));
    CHECK_MESSAGE("log.txt: ");
    free(path);
}

TEST(log_has_no_color_unless_stderr_is_a_terminal)
{
    int old = dup(STDERR_FILENO), fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    CHECK(old >= 0 && fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    bool color = log_color();
    dup2(old, STDERR_FILENO);
    close(old);
    close(fd);
    CHECK(!color);
}

static void log_colored_line(void)
{
    log_line(LOG_INFO, "%s", "\033[31mred\033[0m \033[1;32mno\033[");
}

TEST(log_file_has_no_color_codes)
{
    struct text got = {0}, kept = {0};
    char *path = file_join(test_folder(), "log.txt");
    CHECK_STATUS(OK, log_open(path));
    capture_stderr(log_colored_line, &got);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK(strstr(got.data, "\033[31mred"));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &kept));
    CHECK(strstr(kept.data, " red no\n") && !strchr(kept.data, '\033'));
    free(path);
    text_release(&got);
    text_release(&kept);
}

static void log_fitting_lines(void)
{
    log_line_fitting("\033[31m0123456789\033[0m0123456789", "short");
    log_line_fitting("012345678", "short");
}

/* What a terminal of 20 columns gets; log.txt gets the whole lines. */
TEST(log_gives_a_narrow_terminal_the_short_form)
{
    int main_fd, fd, old = dup(STDERR_FILENO);
    struct winsize size = {.ws_row = 5, .ws_col = 20};
    char got[256];
    struct text kept = {0};
    char *path = file_join(test_folder(), "log.txt");
    test_require_pty();
    CHECK(old >= 0 && openpty(&main_fd, &fd, NULL, NULL, &size) == 0);
    CHECK_STATUS(OK, log_open(path));
    CHECK(dup2(fd, STDERR_FILENO) >= 0);
    log_fitting_lines();
    dup2(old, STDERR_FILENO);
    CHECK_STATUS(OK, log_open(NULL));
    static const char want[] = "short\r\n012345678\r\n";
    size_t len = 0;
    for (ssize_t n; len < sizeof want - 1; len += (size_t)n)
        CHECK((n = read(main_fd, got + len, sizeof got - 1 - len)) > 0);
    got[len] = 0;
    CHECK(!strcmp(got, want));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &kept));
    CHECK(strstr(kept.data, "01234567890123456789\n"));
    capture_stderr(log_fitting_lines, &kept);
    CHECK(!strstr(kept.data, "short")); /* no terminal */
    close(old), close(fd), close(main_fd);
    free(path);
    text_release(&kept);
}

static void failing_twice(void)
{
    status_fail(STATUS_IO, "x.c", 1, "the disk is full");
    log_failure(STATUS_IO);
    log_failure(STATUS_IO);
}

TEST(log_failure_reports_a_failure_once)
{
    struct text got = {0};
    capture_stderr(failing_twice, &got);
    const char *reported = strstr(got.data, "error: the disk is full\n");
    CHECK(reported && !strstr(reported + 1, "error:") && status_is_reported());
    status_fail(STATUS_IO, "x.c", 1, "another");
    CHECK(!status_is_reported());
    text_release(&got);
}

/* As on a full disk: lines of an open log.txt, but not of stderr, which is a pipe. */
static void log_to_full_disk(struct text *err)
{
    int ends[2], old = dup(STDERR_FILENO);
    char bytes[4096];
    CHECK(old >= 0 && !pipe2(ends, O_CLOEXEC) && dup2(ends[1], STDERR_FILENO) >= 0);
    full_disk_begin(0);
    three_lines();
    full_disk_end();
    log_line(LOG_INFO, "the disk has room");
    dup2(old, STDERR_FILENO);
    close(ends[1]);
    close(old);
    for (ssize_t n; (n = read(ends[0], bytes, sizeof bytes)) > 0;) text_add(err, bytes, (size_t)n);
    close(ends[0]);
}

TEST(log_warns_once_of_a_full_disk_and_writes_the_lines_late)
{
    struct text got = {0}, kept = {0};
    const char *path = test_path(test_folder(), "log.txt");
    CHECK_STATUS(OK, log_open(path));
    log_to_full_disk(&got);
    CHECK_STATUS(OK, log_open(NULL));
    const char *warning = strstr(got.data, "log.txt: write: File too large");
    CHECK(warning && !strstr(warning + 1, "log.txt: write"));
    CHECK(strstr(got.data, "step 5\n") && strstr(got.data, "error: no file\n"));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &kept));
    const char *first = strstr(kept.data, " step 5\n"), *last = strstr(kept.data, " the disk has");
    CHECK(first && last > first && strstr(kept.data, " error: no file\n"));
    text_release(&got), text_release(&kept);
}

TEST(log_file_says_how_many_lines_it_lacks)
{
    struct text kept = {0}, got = {0};
    char line[2000];
    const char *path = test_path(test_folder(), "log.txt");
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = 0;
    CHECK_STATUS(OK, log_open(path));
    log_set_quiet(true);
    full_disk_begin(0);
    for (int i = 0; i < 1000; i++) log_line(LOG_INFO, "%s", line);
    full_disk_end();
    log_line(LOG_INFO, "again");
    log_set_quiet(false);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(path, 1 << 24, &kept));
    const char *note = strstr(kept.data, " lines could not be written here\n");
    CHECK(note && strstr(note, " again\n"));
    int lines = 0, lost;
    for (const char *at = kept.data; (at = strstr(at, "xxx\n")); at++) lines++;
    while (note[-1] != ' ') note--;
    CHECK(sscanf(note, "%d lines", &lost) == 1 && lines + lost == 1000 && lost > 100);
    text_release(&got), text_release(&kept);
}

TEST(log_file_says_that_stderr_is_closed)
{
    struct text kept = {0};
    const char *path = test_path(test_folder(), "log.txt");
    int ends[2], old = dup(STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    CHECK_STATUS(OK, log_open(path));
    CHECK(old >= 0 && !pipe2(ends, O_CLOEXEC) && dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[0]), close(ends[1]);
    three_lines();
    dup2(old, STDERR_FILENO);
    close(old);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &kept));
    const char *note = strstr(kept.data, "stderr: write: Broken pipe");
    CHECK(note && !strstr(note + 1, "stderr: write"));
    CHECK(strstr(kept.data, " step 5\n") && strstr(kept.data, " error: no file\n"));
    text_release(&kept);
}
