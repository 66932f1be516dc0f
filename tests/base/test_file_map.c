// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "base/file_map.h"
#include "base/log.h"
#include "metrics/memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 8 };

static uint64_t page(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

static char *in_folder(const char *name) { return file_join(test_folder(), name); }

/* A file of PAGES pages, each full of its own digit. */
static char *write_pages(const char *name)
{
    char *path = in_folder(name), *bytes = heap(PAGES * page());
    for (uint64_t i = 0; i < PAGES * page(); i++) bytes[i] = (char)('0' + i / page());
    CHECK_STATUS(OK, file_write(path, bytes, PAGES * page()));
    free(bytes);
    return path;
}

TEST(file_map_has_the_bytes_and_an_empty_file_has_none)
{
    char *path = in_folder("m");
    struct file_map map;
    CHECK_STATUS(OK, file_write(path, "mapped", 6));
    CHECK_STATUS(OK, file_map_open(&map, path));
    CHECK(map.size == 6 && !memcmp(map.data, "mapped", 6));
    file_map_close(&map);
    CHECK(!map.data && !map.size);
    CHECK_STATUS(OK, file_write(path, "", 0));
    CHECK_STATUS(OK, file_map_open(&map, path));
    CHECK(!map.data && !map.size);
    file_map_close(&map);
    free(path);
}

TEST(evicted_pages_of_a_file_map_are_read_again)
{
    enum { SIZE = 5 << 20 };
    char *path = in_folder("f"), *bytes = heap(SIZE);
    struct file_map map;
    for (int i = 0; i < SIZE; i++) bytes[i] = (char)(i % 251);
    CHECK_STATUS(OK, file_write(path, bytes, SIZE));
    CHECK_STATUS(OK, file_map_open(&map, path));
    CHECK(!memcmp(map.data, bytes, SIZE));
    int64_t before = memory_resident_bytes();
    file_map_evict(&map, 1, SIZE - 1);
    CHECK(before - memory_resident_bytes() > SIZE / 2);
    CHECK(!memcmp(map.data, bytes, SIZE));
    file_map_evict(&map, SIZE, SIZE + 4096); /* past the end: ignored */
    file_map_close(&map);
    file_map_evict(&map, 0, 0);
    free(path), free(bytes);
}

static bool are_zeros(const unsigned char *at, uint64_t len)
{
    for (uint64_t i = 0; i < len; i++)
        if (at[i]) return false;
    return true;
}

TEST(a_file_truncated_while_mapped_reads_as_zeros_until_the_check_fails)
{
    for (uint64_t left = 0; left < PAGES; left += 3) {
        char *path = write_pages("f");
        struct file_map map;
        CHECK_STATUS(OK, file_map_open(&map, path));
        CHECK(map.data[left * page()] == '0' + left);
        CHECK_STATUS(OK, file_map_check(&map));
        CHECK(!truncate(path, (off_t)(left * page())));
        CHECK(are_zeros(map.data + left * page(), (PAGES - left) * page()));
        for (uint64_t i = 0; i < left; i++) CHECK(map.data[i * page()] == '0' + i);
        CHECK_STATUS(DATA, file_map_check(&map));
        char where[64];
        snprintf(where, sizeof where, "/f: the file was truncated from %llu to %llu bytes",
                 (unsigned long long)(PAGES * page()), (unsigned long long)(left * page()));
        CHECK_MESSAGE(where);
        CHECK_STATUS(DATA, file_map_check_after(&map, STATUS_OK));
        file_map_close(&map);
        free(path);
    }
}

TEST(truncation_within_a_page_is_found_without_a_signal)
{
    char *path = write_pages("f");
    struct file_map map;
    CHECK_STATUS(OK, file_map_open(&map, path));
    CHECK(!truncate(path, (off_t)(PAGES * page() - 10)));
    CHECK(are_zeros(map.data + PAGES * page() - 10, 10)); /* no signal: the page still exists */
    CHECK_STATUS(DATA, file_map_check(&map));
    CHECK_MESSAGE("bytes from offset");
    file_map_close(&map);
    free(path);
}

TEST(a_file_truncated_for_a_moment_is_an_io_error_at_the_first_lost_offset)
{
    char *path = write_pages("f");
    struct file_map map;
    CHECK_STATUS(OK, file_map_open(&map, path));
    CHECK(!truncate(path, 0));
    CHECK(!map.data[5 * page() + 7] && !map.data[2 * page() + 1] && !map.data[3 * page()]);
    CHECK(!truncate(path, (off_t)(PAGES * page())));
    CHECK_STATUS(IO, file_map_check(&map));
    char where[64];
    snprintf(where, sizeof where, "offset %llu of", (unsigned long long)(2 * page() + 1));
    CHECK_MESSAGE(where);
    file_map_close(&map);
    free(path);
}

TEST(a_check_restores_the_failure_of_a_reader_if_the_mapping_is_intact)
{
    char *path = write_pages("f");
    struct file_map map, none = {0};
    CHECK_STATUS(OK, file_map_open(&map, path));
    enum status st = status_fail(STATUS_CONFIG, __FILE__, __LINE__, "its own failure");
    CHECK_STATUS(CONFIG, file_map_check_after(&map, st));
    CHECK_MESSAGE("its own failure");
    CHECK_STATUS(OK, file_map_check(&none));
    file_map_close(&map);
    free(path);
}

TEST(a_file_renamed_over_a_mapped_one_leaves_the_mapping_intact)
{
    char *path = write_pages("f");
    struct file_map map;
    CHECK_STATUS(OK, file_map_open(&map, path));
    CHECK_STATUS(OK, file_write(path, "shorter", 7)); /* writes another file and renames it */
    CHECK(map.data[page()] == '1');
    CHECK_STATUS(OK, file_map_check(&map));
    CHECK(!unlink(path));
    CHECK_STATUS(OK, file_map_check(&map));
    file_map_close(&map);
    free(path);
}

TEST(a_file_modified_in_place_is_logged_once)
{
    char *path = write_pages("f"), *log = in_folder("log");
    struct file_map map;
    struct text lines = {0};
    CHECK_STATUS(OK, file_map_open(&map, path));
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    const struct timespec times[2] = {{1, 0}, {1, 0}};
    CHECK(fd >= 0 && pwrite(fd, "x", 1, 3) == 1 && !futimens(fd, times) && !close(fd));
    CHECK_STATUS(OK, log_open(log));
    for (int i = 0; i < 3; i++) CHECK_STATUS(OK, file_map_check(&map));
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(log, 1 << 20, &lines));
    const char *said = strstr(lines.data, "/f: the file was modified");
    CHECK(said && !strstr(said + 1, "/f: the file was modified"));
    text_release(&lines);
    file_map_close(&map);
    free(path), free(log);
}

static void *read_backwards(void *context)
{
    const struct file_map *map = context;
    uintptr_t bad = 0;
    for (uint64_t i = PAGES; i-- > 0;) bad |= map->data[i * page()];
    return (void *)bad;
}

TEST(threads_may_read_a_torn_mapping_together)
{
    enum { THREADS = 8, ROUNDS = 50 };
    for (int round = 0; round < ROUNDS; round++) {
        char *path = write_pages("f");
        struct file_map map;
        pthread_t threads[THREADS];
        CHECK_STATUS(OK, file_map_open(&map, path));
        CHECK(!truncate(path, 0));
        for (int i = 0; i < THREADS; i++)
            CHECK(!pthread_create(&threads[i], NULL, read_backwards, &map));
        for (int i = 0; i < THREADS; i++) {
            void *bad;
            CHECK(!pthread_join(threads[i], &bad) && !bad);
        }
        CHECK_STATUS(DATA, file_map_check(&map));
        file_map_close(&map);
        free(path);
    }
}

TEST(a_guard_is_reused_without_the_mark_of_the_mapping_before)
{
    char *torn = write_pages("torn"), *path = write_pages("f");
    struct file_map map;
    for (int i = 0; i < 3; i++) {
        free(torn);
        torn = write_pages("torn");
        CHECK_STATUS(OK, file_map_open(&map, torn));
        CHECK(!truncate(torn, 0) && !map.data[0]);
        CHECK_STATUS(DATA, file_map_check(&map));
        file_map_close(&map);
        CHECK_STATUS(OK, file_map_open(&map, path));
        CHECK(map.data[page()] == '1');
        CHECK_STATUS(OK, file_map_check(&map));
        file_map_close(&map);
    }
    free(torn), free(path);
}

/* Reads, in a child, a truncated file that it has mapped by itself, while others are mapped by us.
 * Returns the child's exit code, or 128 + the signal that ended it. */
static int read_foreign_mapping(void (*handler)(int), bool send)
{
    char *path = write_pages("foreign"), *other = write_pages("f");
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        struct file_map map;
        alarm(10);
        signal(SIGBUS, handler);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        volatile char *at = mmap(NULL, page(), PROT_READ, MAP_SHARED, fd, 0);
        bool ready = !file_map_open(&map, other) && at != MAP_FAILED && !truncate(path, 0);
        if (ready && send) kill(getpid(), SIGBUS);
        _exit(ready ? at[0] : 1);
    }
    int code;
    CHECK(child > 0 && waitpid(child, &code, 0) == child);
    free(path), free(other);
    return WIFSIGNALED(code) ? 128 + WTERMSIG(code) : WEXITSTATUS(code);
}

static void exit_with_7(int signal)
{
    (void)signal;
    _exit(7);
}

TEST(other_bus_errors_end_the_process_or_reach_the_handler_before)
{
    CHECK(read_foreign_mapping(SIG_DFL, false) == 128 + SIGBUS);
    CHECK(read_foreign_mapping(SIG_DFL, true) == 128 + SIGBUS);
    CHECK(read_foreign_mapping(exit_with_7, false) == 7);
    CHECK(read_foreign_mapping(exit_with_7, true) == 7);
}
