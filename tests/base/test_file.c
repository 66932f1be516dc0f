// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char *in_folder(const char *name) { return file_join(test_folder(), name); }

TEST(file_reads_back_what_was_written)
{
    char *path = in_folder("a.bin");
    struct text got = {0};
    uint64_t size = 0;
    CHECK_STATUS(OK, file_write(path, "old and longer", 14));
    CHECK_STATUS(OK, file_write(path, "new\0bytes", 9));
    CHECK_STATUS(OK, file_size(path, &size));
    CHECK(size == 9 && file_exists(path) && !file_is_dir(path));
    CHECK_STATUS(OK, file_read(path, 9, &got));
    CHECK(got.len == 9 && !memcmp(got.data, "new\0bytes", 10));
    CHECK_STATUS(DATA, file_read(path, 8, &got));
    CHECK_MESSAGE("9 bytes, more than the 8 allowed");
    text_release(&got);
    free(path);
}

TEST(file_write_is_atomic)
{
    const char *folder = test_folder();
    char *target = file_join(folder, "taken"), *absent = file_join(folder, "no/file");
    CHECK_STATUS(OK, file_make_dirs(target));
    CHECK_STATUS(IO, file_write(target, "x", 1));
    CHECK_STATUS(IO, file_write(absent, "x", 1));
    struct file_list names;
    CHECK_STATUS(OK, file_list_dir(&names, folder));
    CHECK(names.count == 1 && !strcmp(names.paths[0], "taken"));
    file_list_release(&names);
    free(target);
    free(absent);
}

TEST(file_write_follows_links)
{
    const char *folder = test_folder(), *link = test_path(folder, "link");
    const char *target = test_path(folder, "below/target");
    struct text t = {0};
    struct stat s;
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "below")));
    CHECK_STATUS(OK, file_write(target, "old", 3));
    CHECK(!symlink("below/target", link));
    CHECK_STATUS(OK, file_write(link, "new", 3));
    CHECK(!lstat(link, &s) && S_ISLNK(s.st_mode));
    CHECK_STATUS(OK, file_read(target, 10, &t));
    CHECK(!strcmp(t.data, "new"));
    CHECK(!unlink(target)); /* the link dangles */
    CHECK_STATUS(OK, file_write(link, "newer", 5));
    CHECK(!lstat(link, &s) && S_ISLNK(s.st_mode));
    CHECK_STATUS(OK, file_read(target, 10, &t));
    CHECK(!strcmp(t.data, "newer"));
    CHECK(!symlink("link", test_path(folder, "below/other")));
    CHECK_STATUS(OK, file_write(test_path(folder, "below/other"), "first", 5));
    CHECK(!lstat(test_path(folder, "below/link"), &s) && S_ISREG(s.st_mode));
    text_release(&t);
}

/* Writes into it, as into a device. */
TEST(file_write_does_not_replace_a_fifo)
{
    const char *path = test_path(test_folder(), "fifo");
    char bytes[8] = "";
    struct stat s;
    CHECK(!mkfifo(path, 0600));
    CHECK_STATUS(IO, file_write(path, "piped", 5));
    CHECK_MESSAGE("fifo: no process reads this FIFO");
    int fd = open(path, O_RDWR | O_NONBLOCK);
    CHECK(fd >= 0);
    CHECK_STATUS(OK, file_write(path, "piped", 5));
    CHECK(read(fd, bytes, sizeof bytes) == 5 && !memcmp(bytes, "piped", 5));
    CHECK(!stat(path, &s) && S_ISFIFO(s.st_mode));
    close(fd);
}

/* Writes to the path while stdout is the file `fd`. */
static enum status write_with_stdout(int fd, const char *path, const char *line)
{
    int old = dup(STDOUT_FILENO);
    CHECK(old >= 0 && !fflush(stdout) && dup2(fd, STDOUT_FILENO) >= 0);
    enum status st = file_write(path, line, strlen(line));
    CHECK(dup2(old, STDOUT_FILENO) >= 0 && !close(old));
    return st;
}

/* Links as /dev/stdout, which root must not replace. */
TEST(file_write_writes_into_the_file_of_stdout)
{
    const char *folder = test_folder(), *link = test_path(folder, "link");
    const char *path = test_path(folder, "out");
    struct text t = {0}, other = {0};
    char bytes[16] = "";
    struct stat s;
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, "old ", 4) == 4 && !symlink("/proc/self/fd/1", link));
    CHECK_STATUS(OK, write_with_stdout(fd, link, "new "));
    CHECK_STATUS(OK, file_read(path, 10, &t));
    CHECK(!strcmp(t.data, "old new "));
    CHECK(!unlink(path)); /* now "out (deleted)" */
    CHECK_STATUS(OK, write_with_stdout(fd, link, "end"));
    CHECK(pread(fd, bytes, sizeof bytes, 0) == 11 && !memcmp(bytes, "old new end", 11));
    CHECK(!lstat(link, &s) && S_ISLNK(s.st_mode));
    text_addf(&other, "/proc/self/fd/%d", fd);
    CHECK(!unlink(link) && !symlink(other.data, link));
    CHECK_STATUS(IO, file_write(link, "x", 1));
    CHECK_MESSAGE("link: leads to a deleted file");
    CHECK(!lstat(link, &s) && S_ISLNK(s.st_mode) && !file_exists(path));
    close(fd);
    text_release(&t), text_release(&other);
}

/* As one that was closed, which main opens. */
TEST(file_write_opens_what_a_stdout_for_reading_only_cannot_write)
{
    const char *path = test_path(test_folder(), "file");
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(null >= 0);
    CHECK_STATUS(OK, write_with_stdout(null, "/dev/null", "x"));
    close(null);
    CHECK(file_is_stream("/dev/null") && !file_is_stream(path));
    CHECK_STATUS(OK, file_write(path, "x", 1));
    CHECK(!file_is_stream(path));
}

TEST(file_read_requires_a_regular_file)
{
    char *absent = in_folder("absent"), *fifo = in_folder("fifo");
    struct text got = {0};
    uint64_t size;
    int fd;
    CHECK(mkfifo(fifo, 0600) == 0);
    CHECK_STATUS(MISSING, file_read(absent, 10, &got));
    CHECK_MESSAGE("absent: no such file");
    CHECK_STATUS(MISSING, file_read(test_path(fifo, "below a file"), 10, &got));
    CHECK_MESSAGE("below a file: no such file");
    CHECK_STATUS(DATA, file_read(fifo, 10, &got));
    CHECK_STATUS(DATA, file_open("/dev/null", &fd, &size));
    CHECK_MESSAGE("not a regular file");
    text_release(&got);
    free(absent);
    free(fifo);
}

TEST(file_read_at_and_write_at_are_complete_or_fail)
{
    char *path = in_folder("at"), bytes[4] = "";
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_STATUS(OK, file_write_at(fd, path, "wxyz", 4, 3));
    CHECK_STATUS(OK, file_read_at(fd, path, bytes, 4, 3));
    CHECK(!memcmp(bytes, "wxyz", 4));
    CHECK_STATUS(OK, file_read_at(fd, path, bytes, 4, 0));
    CHECK(!memcmp(bytes, "\0\0\0w", 4));
    CHECK_STATUS(DATA, file_read_at(fd, path, bytes, 4, 5));
    CHECK_MESSAGE("ends 2 bytes early");
    close(fd);
    CHECK_STATUS(IO, file_write_at(-1, path, "x", 1, 0));
    free(path);
}

TEST(file_write_at_writes_large_blocks_completely)
{
    enum { LEN = (3 << 20) + 5, AT = 7 };
    char *path = in_folder("large"), *bytes = heap(LEN), *got = heap(AT + LEN);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    for (size_t i = 0; i < LEN; i++) bytes[i] = (char)(i * i >> 7);
    CHECK_STATUS(OK, file_write_at(fd, path, bytes, LEN, AT));
    CHECK_STATUS(OK, file_read_at(fd, path, got, AT + LEN, 0));
    CHECK(!memcmp(got, "\0\0\0\0\0\0\0", AT) && !memcmp(got + AT, bytes, LEN));
    CHECK_STATUS(DATA, file_read_at(fd, path, got, 1, AT + LEN));
    close(fd);
    free(path);
    free(bytes);
    free(got);
}

TEST(file_discard_tree_keeps_the_failure_before_it)
{
    struct text bytes = {0};
    const char *tree = test_path(test_folder(), "tree");
    CHECK_STATUS(OK, file_make_dirs(test_path(tree, "a")));
    CHECK_STATUS(MISSING, file_read(test_path(tree, "missing"), 10, &bytes));
    char *message = heap_strdup(status_message());
    file_discard_tree(tree);
    CHECK(!file_exists(tree) && !strcmp(status_message(), message));
    free(message);
}

TEST(file_remove_tree_does_not_follow_links)
{
    char *top = in_folder("t"), *deep = file_join(top, "a//b/c/"), *link = file_join(top, "a/link");
    char *kept = in_folder("kept");
    CHECK_STATUS(OK, file_make_dirs(deep));
    CHECK_STATUS(OK, file_make_dirs(deep));
    CHECK(file_is_dir(deep));
    CHECK_STATUS(OK, file_make_dirs(kept));
    char *inside = file_join(kept, "file");
    CHECK_STATUS(OK, file_write(inside, "x", 1));
    CHECK(symlink(kept, link) == 0);
    char *through = file_join(inside, "below");
    CHECK_STATUS(IO, file_make_dirs(through));
    CHECK_STATUS(OK, file_remove_tree(top));
    CHECK(!file_exists(top) && file_exists(inside));
    CHECK_STATUS(OK, file_remove_tree(top));
    char *all[] = {top, deep, link, kept, inside, through};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

TEST(file_glob_returns_sorted_paths)
{
    const char *folder = test_folder();
    static const char *const names[] = {"b.txt", "a.txt", "B.txt", "c.bin"};
    for (size_t i = 0; i < 4; i++) {
        char *path = file_join(folder, names[i]);
        CHECK_STATUS(OK, file_write(path, "", 0));
        free(path);
    }
    char *pattern = file_join(folder, "*.txt"), *none = file_join(folder, "*.gz");
    struct file_list l;
    CHECK_STATUS(OK, file_glob(&l, pattern));
    CHECK(l.count == 3 && strstr(l.paths[0], "B.txt") && strstr(l.paths[1], "a.txt"));
    file_list_release(&l);
    CHECK_STATUS(MISSING, file_glob(&l, none));
    CHECK_MESSAGE("*.gz: no such file");
    CHECK_STATUS(MISSING, file_list_dir(&l, none));
    free(pattern);
    free(none);
}

TEST(file_glob_fails_if_a_folder_cannot_be_read)
{
    const char *folder = test_folder(), *loop = test_path(folder, "loop");
    struct file_list l;
    CHECK(symlink("loop", loop) == 0); /* ELOOP */
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "good")));
    CHECK_STATUS(OK, file_write(test_path(folder, "good/a.txt"), "", 0));
    CHECK_STATUS(IO, file_glob(&l, test_path(folder, "loop/*.txt")));
    CHECK_MESSAGE("loop/*.txt: cannot read the folder");
    CHECK_STATUS(MISSING, file_glob(&l, test_path(folder, "none/*.txt")));
    CHECK_STATUS(MISSING, file_glob(&l, test_path(folder, "good/a.txt/*.txt")));
    CHECK(unlink(loop) == 0);
    CHECK_STATUS(OK, file_glob(&l, test_path(folder, "*/*.txt")));
    CHECK(l.count == 1);
    file_list_release(&l);
}

TEST(file_join_keeps_absolute_names_and_adds_one_slash)
{
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"a", "/b", "/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *got = file_join(cases[i][0], cases[i][1]);
        CHECK(!strcmp(got, cases[i][2]));
        free(got);
    }
}

TEST(file_name_and_file_parent_split_a_path_at_its_last_slash)
{
    static const char *const cases[][3] = {{"a/b/c.bin", "a/b", "c.bin"},
                                           {"c", ".", "c"},
                                           {"/c", "/", "c"},
                                           {"a//c", "a", "c"},
                                           {"../c", "..", "c"},
                                           {"a/b/", "a", ""},
                                           {"a/", ".", ""},
                                           {"/", "/", ""},
                                           {"//", "/", ""},
                                           {"", ".", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *parent = file_parent(cases[i][0]);
        CHECK(!strcmp(parent, cases[i][1]) && !strcmp(file_name(cases[i][0]), cases[i][2]));
        free(parent);
    }
}

TEST(file_has_suffix_requires_a_name_before_it)
{
    CHECK(file_has_suffix("a/b.jsonl.gz", ".gz"));
    CHECK(!file_has_suffix("a/b.jsonl.gz", ".jsonl"));
    CHECK(!file_has_suffix(".gz", ".gz"));
    CHECK(!file_has_suffix("z", ".gz"));
}

TEST(file_exists_in_finds_files_and_folders)
{
    const char *folder = test_folder(), *path = test_path(folder, "a.txt");
    CHECK_STATUS(OK, file_write(path, "", 0));
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "below")));
    CHECK(file_exists_in(folder, "a.txt") && file_exists_in(folder, "below"));
    CHECK(!file_exists_in(folder, "a") && !file_exists_in(path, "a.txt"));
}

TEST(file_glob_prefers_a_file_of_that_exact_name)
{
    const char *folder = test_folder();
    char *odd = file_join(folder, "text [1].txt"), *other = file_join(folder, "text 1.txt");
    struct file_list l;
    CHECK_STATUS(OK, file_write(other, "", 0));
    CHECK_STATUS(OK, file_glob(&l, odd)); /* no file of that name, so it is a pattern */
    CHECK(l.count == 1 && !strcmp(l.paths[0], other));
    file_list_release(&l);
    CHECK_STATUS(OK, file_write(odd, "", 0));
    CHECK_STATUS(OK, file_glob(&l, odd));
    CHECK(l.count == 1 && !strcmp(l.paths[0], odd));
    file_list_release(&l);
    free(odd);
    free(other);
}

TEST(file_find_distinguishes_absent_from_unknown)
{
    enum file_kind kind;
    const char *folder = test_folder(), *file = test_path(folder, "file");
    const char *loop = test_path(folder, "loop");
    CHECK_STATUS(OK, file_write(file, "x", 1));
    CHECK_STATUS(OK, file_find(folder, &kind));
    CHECK(kind == FILE_FOLDER);
    CHECK_STATUS(OK, file_find(file, &kind));
    CHECK(kind == FILE_REGULAR);
    CHECK_STATUS(OK, file_find("/dev/null", &kind));
    CHECK(kind == FILE_SPECIAL);
    CHECK_STATUS(OK, file_find(test_path(folder, "none"), &kind));
    CHECK(kind == FILE_ABSENT);
    CHECK_STATUS(OK, file_find(test_path(file, "below a file"), &kind));
    CHECK(kind == FILE_ABSENT);
    char name[300] = {0};
    memset(name, '*', sizeof name - 1); /* longer than any name, as patterns may be */
    CHECK_STATUS(OK, file_find(test_path(folder, name), &kind));
    CHECK(kind == FILE_ABSENT);
    CHECK(symlink(loop, loop) == 0);
    CHECK_STATUS(IO, file_find(loop, &kind));
    struct file_list names;
    CHECK_STATUS(IO, file_list_dir(&names, loop));
    CHECK_STATUS(MISSING, file_list_dir(&names, test_path(folder, "none")));
    CHECK_STATUS(IO, file_rename(test_path(folder, "none"), file));
}

TEST(file_sync_parent_accepts_a_trailing_slash_and_no_folder)
{
    const char *path = test_path(test_folder(), "made");
    CHECK_STATUS(OK, file_sync_parent("made"));
    CHECK_STATUS(OK, file_sync_parent("/"));
    CHECK_STATUS(OK, file_sync_parent(test_path(path, "")));
    CHECK_STATUS(IO, file_sync_parent(test_path(path, "below")));
}
