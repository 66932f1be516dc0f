// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "base/log.h"

#include <fcntl.h>
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
