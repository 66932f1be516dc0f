/* journal.c -- records what a program changes in a folder, so that power failures can be simulated.
 *
 * With LD_PRELOAD set to this library, JOURNAL to a file and JOURNAL_ROOT to a folder, the program
 * named llamero appends a record for each call that succeeds and changes something below the
 * folder, or calls fsync there:
 *
 *     KIND OFFSET BYTES PATH NEWLINE PATH NEWLINE      the second path of a rename, or empty
 *     BYTES bytes                                      of a write
 *
 * Paths are relative to the folder.  Kinds: c file created, w write, t truncated to OFFSET,
 * s fsync, r rename, u unlink, m mkdir, d rmdir. */
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct change {
    char kind;
    const char *path, *to;
    long long offset;
    const void *bytes;
    size_t len;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The part of the path below the folder; NULL: it is elsewhere. */
static const char *below_root(const char *path)
{
    const char *root = getenv("JOURNAL_ROOT");
    size_t len = root ? strlen(root) : 0;
    if (!len || strncmp(path, root, len) || (path[len] && path[len] != '/')) return NULL;
    return path + len + (path[len] == '/');
}

static void put(int fd, const void *bytes, size_t len)
{
    if (syscall(SYS_write, fd, bytes, len) != (ssize_t)len) _exit(99);
}

static void record(const struct change *c)
{
    char line[2048];
    int before = errno;
    const char *journal = getenv("JOURNAL"), *path = below_root(c->path);
    if (!journal || !path || strncmp(program_invocation_short_name, "llamero", 7)) return;
    const char *to = c->to ? below_root(c->to) : "";
    int len = snprintf(line, sizeof line, "%c %lld %zu %s\n%s\n", c->kind, c->offset, c->len, path,
                       to ? to : "");
    if (len >= (int)sizeof line) _exit(99);
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, journal, flags, 0666);
    put(fd, line, (size_t)len);
    if (c->len) put(fd, c->bytes, c->len);
    syscall(SYS_close, fd);
    errno = before;
}

static bool path_of(int fd, char *path, size_t size)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, size - 1);
    path[n < 0 ? 0 : n] = 0;
    return n > 0;
}

static void record_fd(char kind, int fd, long long offset, const void *bytes, size_t len)
{
    char path[1024];
    int before = errno;
    if (path_of(fd, path, sizeof path))
        record(&(struct change){kind, path, NULL, offset, bytes, len});
    errno = before;
}

/* The records have the order of the calls. */
#define LOCKED(statement)                                                                          \
    do {                                                                                           \
        pthread_mutex_lock(&lock);                                                                 \
        statement;                                                                                 \
        pthread_mutex_unlock(&lock);                                                               \
    } while (0)

int openat(int folder, const char *path, int flags, ...)
{
    unsigned mode = 0;
    if (flags & O_CREAT) {
        va_list ap;
        va_start(ap, flags);
        mode = va_arg(ap, unsigned);
        va_end(ap);
    }
    pthread_mutex_lock(&lock);
    int before = errno;
    bool exists = syscall(SYS_faccessat, folder, path, F_OK) == 0;
    errno = before;
    int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    if (fd >= 0 && (flags & O_CREAT) && !exists)
        record_fd('c', fd, 0, NULL, 0);
    else if (fd >= 0 && (flags & O_TRUNC))
        record_fd('t', fd, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return fd;
}

int open(const char *path, int flags, ...)
{
    unsigned mode = 0;
    if (flags & O_CREAT) {
        va_list ap;
        va_start(ap, flags);
        mode = va_arg(ap, unsigned);
        va_end(ap);
    }
    return openat(AT_FDCWD, path, flags, mode);
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at)
{
    ssize_t n;
    LOCKED(n = syscall(SYS_pwrite64, fd, bytes, len, at);
           if (n > 0) record_fd('w', fd, at, bytes, (size_t)n));
    return n;
}

ssize_t write(int fd, const void *bytes, size_t len)
{
    ssize_t n;
    LOCKED(n = syscall(SYS_write, fd, bytes, len); int before = errno;
           long long end = syscall(SYS_lseek, fd, 0, SEEK_CUR); errno = before;
           if (n > 0 && end >= n) record_fd('w', fd, end - n, bytes, (size_t)n));
    return n;
}

int ftruncate(int fd, off_t len)
{
    int bad;
    LOCKED(bad = (int)syscall(SYS_ftruncate, fd, len); if (!bad) record_fd('t', fd, len, NULL, 0));
    return bad;
}

int fsync(int fd)
{
    int bad;
    LOCKED(bad = (int)syscall(SYS_fsync, fd); if (!bad) record_fd('s', fd, 0, NULL, 0));
    return bad;
}
int fdatasync(int fd) { return fsync(fd); }

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    int bad;
    LOCKED(bad = (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
           if (!bad) record(&(struct change){.kind = 'r', .path = from, .to = to}));
    return bad;
}
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlink(const char *path)
{
    int bad;
    LOCKED(bad = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
           if (!bad) record(&(struct change){.kind = 'u', .path = path}));
    return bad;
}

int rmdir(const char *path)
{
    int bad;
    LOCKED(bad = (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
           if (!bad) record(&(struct change){.kind = 'd', .path = path}));
    return bad;
}

int mkdir(const char *path, mode_t mode)
{
    int bad;
    LOCKED(bad = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
           if (!bad) record(&(struct change){.kind = 'm', .path = path}));
    return bad;
}
