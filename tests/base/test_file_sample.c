// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "base/file_sample.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file of `size` bytes, of which all differ from their neighbors. */
static void write_file(const char *path, size_t size)
{
    struct text t = {0};
    for (size_t i = 0; i < size; i++) text_add(&t, &(char){(char)(i * 31 + i / 251)}, 1);
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&t);
}

static void flip_byte(const char *path, off_t at)
{
    char byte;
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

static uint64_t sample(const char *path)
{
    uint64_t hash;
    int64_t bytes, mtime_ns;
    CHECK_STATUS(OK, file_sample_hash(path, &hash, &bytes, &mtime_ns));
    return hash;
}

TEST(a_sample_of_a_small_file_has_every_byte)
{
    const char *path = test_path(test_folder(), "small");
    write_file(path, 3000);
    uint64_t before = sample(path);
    for (off_t at = 0; at < 3000; at += 17) {
        flip_byte(path, at);
        CHECK(sample(path) != before);
        flip_byte(path, at);
        CHECK(sample(path) == before);
    }
}

TEST(a_sample_of_a_large_file_has_both_ends_and_a_place_in_each_64th)
{
    enum { SIZE = 3 << 20, PART = SIZE / 64, END = 64 << 10 };
    const char *path = test_path(test_folder(), "large");
    write_file(path, SIZE);
    uint64_t before = sample(path);
    static const off_t ends[] = {0, END - 1, SIZE - END, SIZE - 1};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        flip_byte(path, ends[i]);
        CHECK(sample(path) != before);
        flip_byte(path, ends[i]);
    }
    for (int part = 2; part < 62; part += 12) {
        struct text t = {0};
        CHECK_STATUS(OK, file_read(path, SIZE, &t));
        for (size_t i = 0; i < PART; i++) t.data[(size_t)part * PART + i] ^= 1;
        CHECK_STATUS(OK, file_write(path, t.data, t.len));
        CHECK(sample(path) != before);
        for (size_t i = 0; i < PART; i++) t.data[(size_t)part * PART + i] ^= 1;
        CHECK_STATUS(OK, file_write(path, t.data, t.len));
        CHECK(sample(path) == before);
        text_release(&t);
    }
}

TEST(a_sample_depends_on_the_size_and_returns_size_and_time)
{
    const char *path = test_path(test_folder(), "zeros");
    uint64_t hash, before;
    int64_t bytes, mtime_ns;
    static const off_t sizes[] = {0, 1, 8, 16, 4096, 384 << 10, (384 << 10) + 1, 5 << 20, 1 << 30};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct timespec times[2] = {{.tv_sec = 7},
                                          {.tv_sec = 1000 + (time_t)i, .tv_nsec = 5}};
        if (!i) CHECK_STATUS(OK, file_write(path, "", 0));
        CHECK(!truncate(path, sizes[i]));
        CHECK(!utimensat(AT_FDCWD, path, times, 0));
        CHECK_STATUS(OK, file_sample_hash(path, &hash, &bytes, &mtime_ns));
        CHECK(bytes == sizes[i] && mtime_ns == (1000 + (int64_t)i) * 1000000000 + 5);
        CHECK(!i || hash != before);
        before = hash;
    }
}

TEST(a_whole_hash_has_every_byte_of_a_large_file)
{
    enum { SIZE = (2 << 20) + 5 };
    const char *path = test_path(test_folder(), "large");
    uint64_t before, hash;
    int64_t bytes;
    write_file(path, SIZE);
    CHECK_STATUS(OK, file_sample_hash_whole(path, &before, &bytes));
    CHECK(bytes == SIZE);
    for (off_t at = 0; at < SIZE; at += 100003) {
        flip_byte(path, at);
        CHECK_STATUS(OK, file_sample_hash_whole(path, &hash, &bytes));
        CHECK(hash != before);
        flip_byte(path, at);
    }
}

TEST(a_sample_of_a_path_that_is_not_a_file_is_refused)
{
    uint64_t hash;
    int64_t bytes, mtime_ns;
    const char *folder = test_folder(), *fifo = test_path(folder, "fifo");
    CHECK_STATUS(MISSING, file_sample_hash("/nowhere/x", &hash, &bytes, &mtime_ns));
    CHECK_STATUS(DATA, file_sample_hash(folder, &hash, &bytes, &mtime_ns));
    CHECK(!mkfifo(fifo, 0600));
    CHECK_STATUS(DATA, file_sample_hash_whole(fifo, &hash, &bytes));
}
