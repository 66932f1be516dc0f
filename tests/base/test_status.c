// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/status.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static enum status fails(int value) { FAIL(DATA, "file.bin: got %d, expected 3", value); }

static enum status passes_up(int value)
{
    TRY(fails(value));
    return STATUS_OK;
}

static enum status holds(bool *released)
{
    enum status st = STATUS_OK;
    TRY_OUT(passes_up(4));
out:
    *released = true;
    return st;
}

TEST(status_has_the_cause_and_the_call_trace)
{
    bool released = false;
    CHECK(holds(&released) == STATUS_DATA && released);
    CHECK(!strcmp(status_message(), "file.bin: got 4, expected 3"));
    CHECK(strstr(status_stack(), "in fails(value)"));
    CHECK(strstr(status_stack(), "in passes_up(4)"));
}

TEST(every_status_has_a_name_a_text_and_its_documented_exit_code)
{
    for (int s = 0; s < STATUS_COUNT; s++) {
        CHECK(status_name((enum status)s)[0] && status_text((enum status)s)[0]);
        CHECK((status_exit_code((enum status)s) == 0) == (s == STATUS_OK));
    }
    CHECK(status_exit_code(STATUS_USAGE) == 64 && status_exit_code(STATUS_DATA) == 65);
    CHECK(status_exit_code(STATUS_MISSING) == 66 && status_exit_code(STATUS_IO) == 74);
    CHECK(status_exit_code(STATUS_REQUEUE) == 75 && status_exit_code(STATUS_CONFIG) == 78);
    CHECK(status_exit_code(STATUS_DIVERGED) == 80 && status_exit_code(STATUS_COMM) == 81);
    CHECK(status_exit_code(STATUS_MEMORY) == 78 && status_exit_code(STATUS_HANG) == 82);
    CHECK(status_exit_code(STATUS_DEVICE) == 83);
}

TEST(status_message_may_include_the_previous_one)
{
    fails(1);
    status_fail(STATUS_IO, "x.c", 1, "again: %s", status_message());
    CHECK(!strcmp(status_message(), "again: file.bin: got 1, expected 3"));
}

TEST(status_truncates_long_messages)
{
    char *word = heap(100000);
    memset(word, 'x', 99999);
    status_fail(STATUS_IO, "x.c", 1, "%s", word);
    for (int i = 0; i < 500; i++) status_trace(STATUS_IO, "x.c", 1, "a_call_with_some_name()");
    CHECK(strlen(status_message()) > 1000 && strlen(status_message()) < 99999);
    CHECK(strlen(status_stack()) < 99999);
    free(word);
}

static void *fails_elsewhere(void *kept)
{
    status_save(kept, fails(8));
    status_save(kept, fails(9));
    return NULL;
}

TEST(status_is_per_thread_until_a_saved_failure_is_restored)
{
    struct failure kept = {0};
    pthread_t thread;
    fails(7);
    CHECK(pthread_create(&thread, NULL, fails_elsewhere, &kept) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_MESSAGE("got 7");
    CHECK(status_restore(&kept) == STATUS_DATA);
    CHECK_MESSAGE("got 8");
    CHECK(strstr(status_stack(), "test_status.c"));
}

TEST(restoring_an_empty_failure_changes_nothing)
{
    struct failure kept = {0};
    fails(7);
    CHECK_STATUS(OK, status_save(&kept, STATUS_OK));
    CHECK_STATUS(OK, status_restore(&kept));
    CHECK_MESSAGE("got 7");
}

/* The state in which a child process with a BUG ends, and what it prints. */
static int end_of_bug(bool exits, char *printed, size_t size)
{
    int ends[2], code = 0;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (!child) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(ends[1], STDERR_FILENO);
        if (exits) status_exit_on_bug();
        BUG_IF(1 + 1 == 2);
        _exit(0);
    }
    close(ends[1]);
    CHECK(read(ends[0], printed, size - 1) > 0);
    close(ends[0]);
    CHECK(child > 0 && waitpid(child, &code, 0) == child);
    return code;
}

TEST(bug_prints_where_and_ends_the_process)
{
    char printed[256] = "";
    int code = end_of_bug(false, printed, sizeof printed);
    CHECK(WIFSIGNALED(code) && WTERMSIG(code) == SIGABRT);
    CHECK(strstr(printed, "test_status.c") && strstr(printed, "1 + 1 == 2"));
    code = end_of_bug(true, printed, sizeof printed);
    CHECK(WIFEXITED(code) && WEXITSTATUS(code) == 70);
}

TEST(status_prefix_goes_before_the_message)
{
    status_fail(STATUS_IO, "x.c", 1, "the disk is full");
    CHECK(status_prefix(STATUS_IO, "step %d", 7) == STATUS_IO);
    CHECK(!strcmp(status_message(), "step 7: the disk is full"));
}

TEST(status_prefix_keeps_a_long_path_and_the_message)
{
    char path[601] = "";
    memset(path, 'x', sizeof path - 1);
    status_fail(STATUS_IO, "x.c", 1, "the disk is full");
    status_prefix(STATUS_IO, "%s.bin", path);
    CHECK_MESSAGE("xx.bin: the disk is full");
    char *longer = heap(3 * STATUS_TEXT);
    memset(longer, 'y', 3 * STATUS_TEXT - 1);
    longer[3 * STATUS_TEXT - 1] = 0;
    status_prefix(STATUS_IO, "%s", longer);
    CHECK_MESSAGE("xx.bin: the disk is full");
    free(longer);
}

static enum status prefixes(bool out)
{
    enum status st = STATUS_OK;
    TRY_PREFIX(st, "never");
    if (!out) TRY_PREFIX(passes_up(5), "item %d", 2);
    TRY_PREFIX_OUT(passes_up(6), "item %d", 3);
out:
    return st;
}

TEST(try_prefix_keeps_status_and_trace)
{
    CHECK_STATUS(DATA, prefixes(false));
    CHECK(!strcmp(status_message(), "item 2: file.bin: got 5, expected 3"));
    CHECK(strstr(status_stack(), "in fails(value)") && strstr(status_stack(), "in passes_up(5)"));
    CHECK_STATUS(DATA, prefixes(true));
    CHECK(!strcmp(status_message(), "item 3: file.bin: got 6, expected 3"));
    CHECK(strstr(status_stack(), "in fails(value)") && strstr(status_stack(), "in passes_up(6)"));
}

TEST(failure_is_marked_shared_and_remote_until_the_next_one)
{
    status_fail(STATUS_IO, "x.c", 1, "the disk is full");
    CHECK(!status_is_shared() && !status_is_remote());
    status_mark_shared(), status_mark_remote();
    status_prefix(STATUS_IO, "step 3");
    CHECK(status_is_shared() && status_is_remote());
    status_fail(STATUS_IO, "x.c", 1, "the disk is full");
    CHECK(!status_is_shared() && !status_is_remote());
}

TEST(restored_failure_is_shared_and_remote_exactly_if_it_was_when_it_was_saved)
{
    struct failure alone = {0}, together = {0};
    status_save(&alone, fails(7));
    status_mark_shared(), status_mark_remote(); /* of another failure, say */
    CHECK_STATUS(DATA, status_restore(&alone));
    CHECK(!status_is_shared() && !status_is_remote());
    fails(8);
    status_mark_shared(), status_mark_remote();
    status_save(&together, STATUS_DATA);
    fails(9);
    CHECK_STATUS(DATA, status_restore(&together));
    CHECK(status_is_shared() && status_is_remote());
    CHECK_MESSAGE("got 8");
}
