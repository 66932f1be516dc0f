// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "runs/file_tail.h"

#include <sys/stat.h>
#include <unistd.h>

struct heard {
    struct text lines; /* each in brackets */
    int restarts;
};

static void hear(void *context, const char *bytes, size_t len)
{
    struct text *t = &((struct heard *)context)->lines;
    text_adds(t, "[");
    text_add(t, bytes, len);
    text_adds(t, "]");
}

static void restart(void *context) { ((struct heard *)context)->restarts++; }

static const char *path_of(void) { return test_path(test_folder(), "file"); }

static void append(const char *path, const char *bytes, size_t len)
{
    FILE *f = fopen(path, "ab");
    CHECK(f && fwrite(bytes, 1, len, f) == len && !fclose(f));
}

static void check_heard(struct heard *h, const char *want, int restarts)
{
    CHECK(!strcmp(h->lines.data ? h->lines.data : "", want) && h->restarts == restarts);
    text_clear(&h->lines);
}

TEST(file_tail_passes_on_complete_lines_once)
{
    struct heard h = {0};
    struct file_tail t = {0};
    const struct file_tail_visitor v = {&h, hear, restart};
    const char *path = path_of();
    append(path, "one\ntw", 6);
    CHECK_STATUS(OK, file_tail_read(&t, path, 1 << 20, &v));
    check_heard(&h, "[one]", 0);
    CHECK_STATUS(OK, file_tail_read(&t, path, 1 << 20, &v));
    check_heard(&h, "", 0);
    append(path, "o\n\nthree\nfo", 11);
    CHECK_STATUS(OK, file_tail_read(&t, path, 1 << 20, &v));
    check_heard(&h, "[two][][three]", 0);
    file_tail_release(&t);
    text_release(&h.lines);
}

/* Offsets that 32 bits cannot hold; the file is a hole up to there. */
TEST(file_tail_reads_files_of_several_gib)
{
    struct heard h = {0};
    struct file_tail t = {0};
    const struct file_tail_visitor v = {&h, hear, restart};
    const char *path = path_of();
    const uint64_t hole = UINT64_C(5) << 30;
    append(path, "first\n", 6);
    CHECK(!truncate(path, (off_t)hole));
    append(path, "\none\ntw", 7);
    CHECK_STATUS(OK, file_tail_read(&t, path, 4096, &v));
    check_heard(&h, "[one]", 0);
    append(path, "o\nthree\n", 8);
    CHECK_STATUS(OK, file_tail_read(&t, path, 4096, &v));
    check_heard(&h, "[two][three]", 0);
    CHECK(t.read_to == hole + 15 && t.num_skipped == hole + 7 - 4096);
    file_tail_release(&t);
    text_release(&h.lines);
}

TEST(file_tail_starts_over_after_a_replacement_or_a_truncation)
{
    struct heard h = {0};
    struct file_tail t = {0};
    const struct file_tail_visitor v = {&h, hear, restart};
    const char *path = path_of();
    append(path, "one\ntwo\npart", 12);
    CHECK_STATUS(OK, file_tail_read(&t, path, 1 << 20, &v));
    check_heard(&h, "[one][two]", 0);
    CHECK_STATUS(OK, file_write(path, "a longer file than before\n", 26));
    CHECK_STATUS(OK, file_tail_read(&t, path, 1 << 20, &v));
    check_heard(&h, "[a longer file than before]", 1);
    CHECK(!truncate(path, 2));
    CHECK_STATUS(OK, file_tail_read(&t, path, 1 << 20, &v));
    check_heard(&h, "", 2);
    append(path, "!\n", 2);
    CHECK_STATUS(OK, file_tail_read(&t, path, 1 << 20, &v));
    check_heard(&h, "[a !]", 2);
    file_tail_release(&t);
    text_release(&h.lines);
}

TEST(file_tail_reads_the_end_of_a_long_file)
{
    struct heard h = {0};
    struct file_tail t = {0};
    const struct file_tail_visitor v = {&h, hear, restart};
    const char *path = path_of();
    append(path, "first\nsecond\nthird\n", 19);
    CHECK_STATUS(OK, file_tail_read(&t, path, 9, &v));
    check_heard(&h, "[third]", 0);
    CHECK(t.num_skipped == 10);
    file_tail_release(&t);
    text_release(&h.lines);
}

TEST(file_tail_drops_lines_that_are_too_long)
{
    struct heard h = {0};
    struct file_tail t = {0};
    const struct file_tail_visitor v = {&h, hear, restart};
    const char *path = path_of();
    size_t len = 3 * (size_t)FILE_TAIL_LINE;
    char *line = heap(len);
    memset(line, 'x', len);
    append(path, "a\n", 2);
    append(path, line, len);
    append(path, "\nb\n", 3);
    CHECK_STATUS(OK, file_tail_read(&t, path, 1 << 30, &v));
    check_heard(&h, "[a][b]", 0);
    CHECK(t.partial.capacity <= 2 * (size_t)FILE_TAIL_LINE);
    free(line);
    file_tail_release(&t);
    text_release(&h.lines);
}

TEST(file_tail_does_not_wait_for_a_fifo)
{
    struct heard h = {0};
    struct file_tail t = {0};
    const struct file_tail_visitor v = {&h, hear, restart};
    const char *path = path_of();
    CHECK_STATUS(MISSING, file_tail_read(&t, path, 1 << 20, &v));
    CHECK(!mkfifo(path, 0600));
    CHECK_STATUS(DATA, file_tail_read(&t, path, 1 << 20, &v));
}
