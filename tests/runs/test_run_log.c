// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "runs/run_log.h"

static void read_log(struct run_log *l, const char *content, size_t len)
{
    const char *path = test_path(test_folder(), "log.txt");
    CHECK_STATUS(OK, file_write(path, content, len));
    CHECK_STATUS(OK, run_log_update(l, path, 1 << 20));
}

TEST(run_log_keeps_the_last_lines_and_counts_the_others)
{
    struct run_log l = {0};
    struct text all = {0};
    for (int i = 0; i < 1000; i++) text_addf(&all, "line %d\n", i);
    read_log(&l, all.data, all.len);
    CHECK(run_log_count(&l) == RUN_LOG_LINES);
    CHECK(!strcmp(run_log_line(&l, 0), "line 744"));
    CHECK(!strcmp(run_log_line(&l, RUN_LOG_LINES - 1), "line 999"));
    CHECK(run_log_num_dropped(&l, 6) == 994 && run_log_num_dropped(&l, 2000) == 0);
    run_log_release(&l);
    const char *path = test_path(test_folder(), "log.txt");
    CHECK_STATUS(OK, file_write(path, all.data, all.len));
    CHECK_STATUS(OK, run_log_update(&l, path, 100));
    CHECK(run_log_num_dropped(&l, 6) == -1);
    run_log_release(&l);
    text_release(&all);
}

TEST(run_log_lines_are_printable)
{
    struct run_log l = {0};
    read_log(&l, "a\0b\033[31m\xff\nlast, without a newline", 33);
    CHECK(run_log_count(&l) == 1 && !strcmp(run_log_line(&l, 0), "a\\x00b\\x1b[31m\\xff"));
    run_log_release(&l);
}

#define AT "2026-11-24 02:43:13 "

static enum run_log_end end_of(const char *content, const char *want)
{
    struct run_log l = {0};
    const char *message;
    read_log(&l, content, strlen(content));
    enum run_log_end end = run_log_find_end(&l, &message);
    CHECK(want ? message && !strcmp(message, want) : !message);
    run_log_release(&l);
    return end;
}

TEST(run_log_tells_how_a_run_ended)
{
    CHECK(end_of("", NULL) == LOG_ENDS_open);
    CHECK(end_of(AT "step:  1  loss:  6.07\n", NULL) == LOG_ENDS_open);
    CHECK(end_of(AT "step:  1  loss: 6\n" AT "error: loss is nan\n  see x\n" AT "warning: w\n",
                 "loss is nan") == LOG_ENDS_error);
    CHECK(end_of(AT "error: old\n" AT "resumes\n" AT "step:  2  loss: 6\n", NULL) == LOG_ENDS_open);
    CHECK(end_of(AT "SIGTERM after step 20; the checkpoint is saved\n", NULL) == LOG_ENDS_stopped);
    CHECK(end_of(AT "the text error: is in a line\n", NULL) == LOG_ENDS_open);
}

TEST(run_log_keeps_what_each_start_says)
{
    struct run_log l = {0};
    struct text all = {0};
    for (int i = 0; i < RUN_LOG_STARTS + 2; i++)
        text_addf(&all,
                  AT "llamero 0.1.0: a Llama with %d parameters\n" AT "1 rank of 2 threads\n" AT
                     "step:  1  loss: 6\n" AT "llamero is a word\n",
                  i);
    read_log(&l, all.data, all.len);
    CHECK(l.num_starts == RUN_LOG_STARTS);
    for (size_t i = 0; i < l.num_starts; i++) CHECK(l.starts[i].num_lines == 2);
    CHECK(!strcmp(l.starts[0].lines[0], AT "llamero 0.1.0: a Llama with 2 parameters"));
    CHECK(!strcmp(l.starts[0].lines[1], AT "1 rank of 2 threads"));
    run_log_release(&l);
    text_release(&all);
}
