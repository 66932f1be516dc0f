// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include "base/activity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Whether to try again after a failed call, `tries` of which were made; waits first. */
static bool is_worth_retrying(int why, int *tries)
{
    static const long pauses_ms[] = {20, 80, 300, 600};
    bool may_pass = why == EIO || why == ESTALE || why == ETIMEDOUT || why == EINTR;
    if (!may_pass || *tries == sizeof pauses_ms / sizeof *pauses_ms) return false;
    struct timespec pause = {0, pauses_ms[(*tries)++] * 1000000};
    nanosleep(&pause, NULL);
    return true;
}

/* Returns an errno. */
static int stat_retrying(const char *path, struct stat *s)
{
    int bad, tries = 0;
    do {
        bad = stat(path, s) ? errno : 0;
    } while (bad && is_worth_retrying(bad, &tries));
    return bad;
}

enum status file_find(const char *path, enum file_kind *kind)
{
    struct stat s = {0};
    int bad = stat_retrying(path, &s);
    *kind = FILE_ABSENT;
    if (bad == ENOENT || bad == ENOTDIR || bad == ENAMETOOLONG) return STATUS_OK;
    if (bad) FAIL(IO, "%s: %s", path, strerror(bad));
    *kind = S_ISREG(s.st_mode) ? FILE_REGULAR : S_ISDIR(s.st_mode) ? FILE_FOLDER : FILE_SPECIAL;
    return STATUS_OK;
}

bool file_exists(const char *path)
{
    struct stat s;
    return stat_retrying(path, &s) == 0;
}

bool file_is_dir(const char *path)
{
    struct stat s;
    return stat_retrying(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool file_exists_in(const char *folder, const char *name)
{
    char *path = file_join(folder, name);
    bool is = file_exists(path);
    free(path);
    return is;
}

enum status file_open(const char *path, int *fd, uint64_t *size)
{
    struct stat s;
    int tries = 0;
    do {
        *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (*fd < 0 && is_worth_retrying(errno, &tries));
    if (*fd < 0 && (errno == ENOENT || errno == ENOTDIR)) FAIL(MISSING, "%s: no such file", path);
    if (*fd < 0) FAIL(IO, "%s: %s", path, strerror(errno));
    int bad = fstat(*fd, &s) ? errno : 0;
    if (!bad && S_ISREG(s.st_mode)) {
        *size = (uint64_t)s.st_size;
        return STATUS_OK;
    }
    close(*fd);
    if (bad) FAIL(IO, "%s: %s", path, strerror(bad));
    if (S_ISDIR(s.st_mode)) FAIL(DATA, "%s: is a folder, not a regular file", path);
    FAIL(DATA, "%s: not a regular file", path);
}

enum status file_size(const char *path, uint64_t *size)
{
    int fd;
    TRY(file_open(path, &fd, size));
    close(fd);
    return STATUS_OK;
}

enum status file_read_at(int fd, const char *path, void *bytes, size_t len, uint64_t offset)
{
    for (char *to = bytes; len;) {
        ssize_t n = pread(fd, to, len, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) FAIL(IO, "%s: %s", path, strerror(errno));
        if (n == 0) FAIL(DATA, "%s: ends %zu bytes early", path, len);
        to += n, len -= (size_t)n, offset += (uint64_t)n;
        activity_tick_io();
    }
    return STATUS_OK;
}

/* Starts to write the bytes to the disk, so that fsync waits only for the last of them.  Whether
 * that works does not matter: fsync reports what failed. */
static void start_writeback(int fd, size_t len, uint64_t offset)
{
    sync_file_range(fd, (off_t)offset, (off_t)len, SYNC_FILE_RANGE_WRITE);
}

enum status file_write_at(int fd, const char *path, const void *bytes, size_t len, uint64_t offset)
{
    /* ext4 of Linux 6 takes larger writes at a rate that varies more (bench/peers.md). */
    enum { MAX_BYTES = 128 << 10, WRITEBACK_BYTES = 1 << 20 };
    const char *from = bytes;
    for (size_t left = len; left;) {
        uint64_t at = offset + len - left;
        ssize_t n = pwrite(fd, from, left < MAX_BYTES ? left : MAX_BYTES, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) FAIL(IO, "%s: %s", path, strerror(errno));
        from += n, left -= (size_t)n;
        activity_tick_io();
    }
    if (len >= WRITEBACK_BYTES) start_writeback(fd, len, offset);
    return STATUS_OK;
}

enum status file_read(const char *path, uint64_t limit, struct text *out)
{
    int fd;
    uint64_t size;
    text_clear(out);
    TRY(file_open(path, &fd, &size));
    enum status st = STATUS_OK;
    if (size > limit)
        FAIL_OUT(DATA, "%s: %llu bytes, more than the %llu allowed", path, (unsigned long long)size,
                 (unsigned long long)limit);
    text_reserve(out, size);
    TRY_OUT(file_read_at(fd, path, out->data, size, 0));
    out->len = size;
    out->data[size] = 0;
out:
    close(fd);
    return st;
}

enum status file_rename(const char *from, const char *to)
{
    if (rename(from, to)) FAIL(IO, "%s: rename to %s: %s", from, to, strerror(errno));
    return STATUS_OK;
}

enum status file_sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) FAIL(IO, "%s: %s", path, strerror(errno));
    int bad = fsync(fd);
    int why = errno;
    close(fd);
    /* Some network file systems cannot fsync a folder, and do not need to: they return EINVAL. */
    if (bad && why != EINVAL) FAIL(IO, "%s: fsync: %s", path, strerror(why));
    return STATUS_OK;
}

enum status file_sync_parent(const char *path)
{
    char *parent = file_parent(path);
    enum status st = file_sync_dir(parent);
    free(parent);
    return st;
}

static enum status write_all(int fd, const char *path, const char *bytes, size_t len)
{
    enum { MAX_BYTES = 128 << 10 };
    while (len) {
        ssize_t n = write(fd, bytes, len < MAX_BYTES ? len : MAX_BYTES);
        if (n < 0 && errno == EAGAIN) poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) FAIL(IO, "%s: %s", path, strerror(errno));
        bytes += n, len -= (size_t)n;
        activity_tick_io();
    }
    return STATUS_OK;
}

/* Opens without waiting for a FIFO's reader, since no signal would end the wait. */
static enum status write_special(const char *path, const char *bytes, size_t len)
{
    struct stat s;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 && errno == ENXIO && !stat(path, &s) && S_ISFIFO(s.st_mode))
        FAIL(IO, "%s: no process reads this FIFO", path);
    if (fd < 0 || fcntl(fd, F_SETFL, 0)) {
        int why = errno;
        if (fd >= 0) close(fd);
        FAIL(IO, "%s: %s", path, strerror(why));
    }
    enum status st = write_all(fd, path, bytes, len);
    close(fd);
    return st;
}

/* The descriptor of stdout or stderr if that writes to the file of this path, else -1.  main opens
 * those that were closed for reading only. */
static int find_stream(const char *path)
{
    struct stat file, stream;
    if (stat(path, &file)) return -1;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || fstat(fd, &stream)) continue;
        if (stream.st_dev == file.st_dev && stream.st_ino == file.st_ino) return fd;
    }
    return -1;
}

bool file_is_stream(const char *path)
{
    enum file_kind kind;
    return find_stream(path) >= 0 || (!file_find(path, &kind) && kind == FILE_SPECIAL);
}

/* The path itself, or what it leads to as a link, whether that exists or not; heap. */
static enum status follow_links(const char *path, char **target)
{
    enum { MAX_LINKS = 40 }; /* as Linux */
    char to[PATH_MAX];
    ssize_t len = 0;
    *target = heap_strdup(path);
    for (int links = 0; (len = readlink(*target, to, sizeof to)) >= 0; links++) {
        if (links == MAX_LINKS || len == sizeof to) FAIL(IO, "%s: %s", path, strerror(ELOOP));
        char *folder = file_parent(*target);
        to[len] = 0;
        free(*target);
        *target = file_join(folder, to);
        free(folder);
    }
    if (errno != EINVAL && errno != ENOENT) FAIL(IO, "%s: %s", path, strerror(errno));
    return STATUS_OK;
}

static enum status replace_file(const char *path, const void *bytes, size_t len)
{
    enum status st = STATUS_OK;
    struct text temporary = {0};
    text_addf(&temporary, "%s.tmp-%ld", path, (long)getpid());
    int fd = open(temporary.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        FAIL_OUT(IO, "%s: %s", path,
                 errno == ENOENT ? "the folder does not exist" : strerror(errno));
    TRY_OUT(file_write_at(fd, path, bytes, len, 0));
    if (fsync(fd) != 0) FAIL_OUT(IO, "%s: fsync: %s", path, strerror(errno));
    TRY_OUT(file_rename(temporary.data, path));
    TRY_OUT(file_sync_parent(path));
out:
    if (fd >= 0) close(fd);
    if (st && fd >= 0) unlink(temporary.data);
    text_release(&temporary);
    return st;
}

enum status file_write(const char *path, const void *bytes, size_t len)
{
    enum file_kind kind;
    char *target = NULL;
    enum status st = STATUS_OK;
    TRY(file_find(path, &kind));
    if (kind == FILE_FOLDER) FAIL(IO, "%s: is a folder; expected the name of a file", path);
    int stream = find_stream(path);
    if (stream == STDOUT_FILENO) fflush(stdout); /* what was printed before comes first */
    if (stream >= 0) return write_all(stream, path, bytes, len);
    if (kind == FILE_SPECIAL) return write_special(path, bytes, len);
    TRY_OUT(follow_links(path, &target));
    /* /proc/self/fd/3 leads to "NAME (deleted)", but opens the file. */
    if (kind == FILE_REGULAR && strcmp(target, path) && !file_exists(target))
        FAIL_OUT(IO, "%s: leads to a deleted file", path);
    st = replace_file(target, bytes, len);
out:
    free(target);
    return st;
}

bool file_has_suffix(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && !strcmp(path + n - m, suffix);
}

size_t file_url_scheme(const char *path)
{
    size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    return n && !strncmp(path + n, "://", 3) ? n : 0;
}

enum status file_make_dirs(const char *path)
{
    if (file_url_scheme(path)) FAIL(CONFIG, "%s: expected a local path, got a URL", path);
    enum status st = STATUS_OK;
    char *part = heap_strdup(path);
    for (char *at = part + 1; part[0]; at++) {
        bool last = *at == 0;
        if (!last && *at != '/') continue;
        *at = 0;
        if (mkdir(part, 0777) != 0 && !(errno == EEXIST && file_is_dir(part)))
            FAIL_OUT(IO, "%s: mkdir: %s", part, strerror(errno));
        if (last) break;
        *at = '/';
    }
out:
    free(part);
    return st;
}

enum status file_remove_tree(const char *path)
{
    struct stat s;
    if (lstat(path, &s) != 0) {
        if (errno == ENOENT) return STATUS_OK;
        FAIL(IO, "%s: %s", path, strerror(errno));
    }
    if (!S_ISDIR(s.st_mode)) {
        if (unlink(path) != 0 && errno != ENOENT) FAIL(IO, "%s: %s", path, strerror(errno));
        return STATUS_OK;
    }
    struct file_list names;
    TRY(file_list_dir(&names, path));
    enum status st = STATUS_OK;
    for (size_t i = 0; i < names.count && !st; i++) {
        char *child = file_join(path, names.paths[i]);
        st = file_remove_tree(child);
        free(child);
    }
    file_list_release(&names);
    TRY(st);
    if (rmdir(path) != 0 && errno != ENOENT) FAIL(IO, "%s: %s", path, strerror(errno));
    return STATUS_OK;
}

void file_discard_tree(const char *path)
{
    struct failure first = {0};
    status_save(&first, STATUS_IO); /* whatever its status: only the message is needed */
    file_remove_tree(path);
    status_restore(&first);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void append_path(struct file_list *l, const char *path)
{
    l->paths = heap_grow(l->paths, l->count + 1, sizeof *l->paths);
    l->paths[l->count++] = heap_strdup(path);
}

/* Folders that a pattern does not match, or that are gone by now, are no errors. */
static int is_unreadable(const char *path, int why)
{
    (void)path;
    return why != ENOENT && why != ENOTDIR;
}

enum status file_glob(struct file_list *l, const char *pattern)
{
    glob_t found;
    *l = (struct file_list){0};
    if (file_exists(pattern)) { /* "text [1].jsonl" may be a file name */
        append_path(l, pattern);
        return STATUS_OK;
    }
    int bad = glob(pattern, GLOB_NOSORT | GLOB_BRACE, is_unreadable, &found);
    for (size_t i = 0; !bad && i < found.gl_pathc; i++) append_path(l, found.gl_pathv[i]);
    globfree(&found);
    if (bad == GLOB_NOMATCH) FAIL(MISSING, "%s: no such file", pattern);
    if (bad) FAIL(IO, "%s: cannot read the folder", pattern);
    qsort(l->paths, l->count, sizeof *l->paths, by_bytes);
    return STATUS_OK;
}

/* Returns an errno, with part of the names in the list. */
static int list_once(struct file_list *l, const char *path)
{
    DIR *d = opendir(path);
    if (!d) return errno;
    errno = 0; /* readdir returns NULL at the end and on errors */
    for (struct dirent *e; (e = readdir(d)); errno = 0)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) append_path(l, e->d_name);
    int bad = errno;
    closedir(d);
    return bad;
}

enum status file_require_folder(const char *path)
{
    enum file_kind kind;
    TRY(file_find(path, &kind));
    if (kind == FILE_ABSENT) FAIL(MISSING, "%s: no such folder", path);
    if (kind != FILE_FOLDER) FAIL(MISSING, "%s: is a file, not a folder", path);
    return STATUS_OK;
}

enum status file_list_dir(struct file_list *l, const char *path)
{
    int bad, tries = 0;
    *l = (struct file_list){0};
    do {
        file_list_release(l);
        bad = list_once(l, path);
    } while (bad && is_worth_retrying(bad, &tries));
    if (bad) file_list_release(l);
    if (bad == ENOENT) FAIL(MISSING, "%s: no such folder", path);
    if (bad) FAIL(IO, "%s: %s", path, strerror(bad));
    if (l->count) qsort(l->paths, l->count, sizeof *l->paths, by_bytes);
    return STATUS_OK;
}

void file_list_release(struct file_list *l)
{
    for (size_t i = 0; i < l->count; i++) free(l->paths[i]);
    free(l->paths);
    *l = (struct file_list){0};
}

const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *file_parent(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--;
    while (len && path[len - 1] != '/') len--;
    while (len > 1 && path[len - 1] == '/') len--;
    return len ? heap_string(path, len) : heap_string(".", 1);
}

char *file_join(const char *base, const char *name)
{
    struct text t = {0};
    if (name[0] != '/' && base[0]) {
        text_adds(&t, base);
        if (base[strlen(base) - 1] != '/') text_adds(&t, "/");
    }
    text_adds(&t, name);
    return t.data;
}
