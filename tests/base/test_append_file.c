// SPDX-License-Identifier: Apache-2.0
#include "base/full_disk.h"
#include "test.h"

#include "base/append_file.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static struct append_file open_new(const char **path)
{
    struct append_file f;
    *path = test_path(test_folder(), "log");
    CHECK_STATUS(OK, append_file_open(&f, *path, 0));
    return f;
}

static void check_content(const char *path, const char *want)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(path, 1 << 24, &t));
    if (strcmp(t.data ? t.data : "", want) != 0) fail_msg("%s: \"%s\"", path, t.data);
    text_release(&t);
}

TEST(append_file_appends_to_what_exists)
{
    const char *path = test_path(test_folder(), "log");
    struct append_file f;
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(OK, append_file_open(&f, path, 0));
        CHECK(append_file_write(&f, "one\n", 4) && append_file_write(&f, "two\n", 4));
        CHECK(!append_file_is_late(&f));
        append_file_close(&f);
    }
    check_content(path, "one\ntwo\none\ntwo\n");
    CHECK_STATUS(IO, append_file_open(&f, path, O_EXCL));
    CHECK_MESSAGE("log: ");
    append_file_close(&f);
}

TEST(append_file_writes_late_records_in_order_once_it_can)
{
    const char *path;
    struct append_file f = open_new(&path);
    CHECK(append_file_write(&f, "one\n", 4));
    full_disk_begin(6); /* within the second record */
    CHECK(!append_file_write(&f, "two\n", 4) && f.error == EFBIG);
    CHECK(!append_file_write(&f, "three\n", 6));
    CHECK(append_file_is_late(&f) && f.num_late == 2 && !f.num_lost);
    full_disk_end();
    check_content(path, "one\ntw");
    CHECK(append_file_write(&f, "four\n", 5));
    CHECK(!append_file_is_late(&f) && !f.num_late);
    append_file_close(&f);
    check_content(path, "one\ntwo\nthree\nfour\n");
}

TEST(append_file_keeps_bounded_memory_and_counts_one_gap)
{
    enum { RECORD = 1000, RECORDS = 3 * APPEND_FILE_LATE_BYTES / RECORD };
    char record[RECORD];
    const char *path;
    uint64_t size;
    struct append_file f = open_new(&path);
    full_disk_begin(0);
    for (int i = 0; i < RECORDS; i++) {
        memset(record, 'a' + i % 26, RECORD);
        CHECK(!append_file_write(&f, record, RECORD));
        CHECK(f.late.len <= APPEND_FILE_LATE_BYTES);
    }
    size_t kept = f.num_late;
    CHECK(kept == APPEND_FILE_LATE_BYTES / RECORD && kept + f.num_lost == RECORDS);
    full_disk_begin(5 * RECORD /
                    2); /* room for more, but those after the gap must not precede it */
    CHECK(!append_file_write(&f, "x", 1) && f.num_late == kept && f.num_lost == RECORDS - kept + 1);
    full_disk_end();
    CHECK(append_file_flush(&f) && append_file_is_late(&f));
    f.num_lost = 0;
    CHECK(append_file_write(&f, "end", 3));
    CHECK_STATUS(OK, file_size(path, &size));
    CHECK(size == kept * RECORD + 3);
    append_file_close(&f);
}

TEST(append_file_survives_truncation_and_deletion)
{
    const char *path;
    struct append_file f = open_new(&path);
    CHECK(append_file_write(&f, "one\n", 4));
    CHECK(truncate(path, 0) == 0); /* as logrotate's copytruncate */
    CHECK(append_file_write(&f, "two\n", 4));
    check_content(path, "two\n");
    CHECK(unlink(path) == 0);
    CHECK(append_file_write(&f, "three\n", 6));
    check_content(path, "three\n");
    char *folder = heap_string(path, (size_t)(strrchr(path, '/') - path));
    CHECK_STATUS(OK, file_remove_tree(folder));
    CHECK(!append_file_write(&f, "four\n", 5) && f.error == ENOENT && append_file_is_late(&f));
    CHECK_STATUS(OK, file_make_dirs(folder));
    CHECK(append_file_write(&f, "five\n", 5));
    check_content(path, "four\nfive\n");
    append_file_close(&f);
    free(folder);
}

TEST(append_file_opens_a_named_file_with_its_first_record)
{
    const char *folder = test_path(test_folder(), "sub"), *path = test_path(folder, "log");
    struct append_file f;
    append_file_init(&f, path);
    CHECK(append_file_flush(&f) == false && !append_file_is_late(&f));
    CHECK(!append_file_write(&f, "one\n", 4) && f.error == ENOENT && append_file_is_late(&f));
    CHECK_STATUS(OK, file_make_dirs(folder));
    append_file_suspend(&f);
    CHECK(append_file_write(&f, "two\n", 4) && f.fd >= 0);
    append_file_suspend(&f);
    CHECK(f.fd < 0 && append_file_write(&f, "three\n", 6));
    append_file_close(&f);
    append_file_suspend(&f);
    append_file_close(&f);
    check_content(path, "one\ntwo\nthree\n");
}
