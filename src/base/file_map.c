// SPDX-License-Identifier: Apache-2.0
#include "base/file_map.h"

#include "base/escape.h"
#include "base/file.h"
#include "base/heap.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define INTACT UINT64_MAX /* no byte failed */

/* Guards are never freed, only reused, so the handler can walk their list without a lock. */
struct file_guard {
    struct file_guard *next; /* of all guards; set before the guard is reachable */
    struct file_guard *next_unused;
    _Atomic uintptr_t begin, end; /* the mapping, whole pages; end 0: unused */
    _Atomic uint64_t failed_at;   /* the lowest offset that raised SIGBUS */
    _Atomic bool is_modified;     /* logged already */
    char *path;
    struct stat opened;
};

/* A signal handler can reach only statics; only base may have global state. */
static struct file_guard *_Atomic all_guards;
static struct file_guard *unused_guards;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of unused_guards and the handler's
                                                            installation */
static struct sigaction previous;                        /* the handler before ours */
static _Atomic uintptr_t page_bytes;

/* The guard of the mapping that contains the address.  A guard may be changing hands meanwhile, but
 * not the one of the mapping that this thread is reading. */
static struct file_guard *find_guard(uintptr_t at)
{
    for (struct file_guard *g = all_guards; g; g = g->next) {
        uintptr_t end = g->end, begin = g->begin;
        if (at >= begin && at < end && g->end == end) return g;
    }
    return NULL;
}

/* Marks first: a thread that reads the zeros finds the mark. */
static bool replace_with_zeros(uintptr_t at)
{
    struct file_guard *g = find_guard(at);
    if (!g) return false;
    uintptr_t page = at / page_bytes * page_bytes;
    uint64_t offset = at - g->begin, lowest = g->failed_at;
    while (offset < lowest && !atomic_compare_exchange_weak(&g->failed_at, &lowest, offset)) {
    }
    return mmap((void *)page, g->end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) != MAP_FAILED;
}

/* Calls only what a signal handler may; mmap is a plain system call. */
static void on_bus_error(int signal, siginfo_t *info, void *context)
{
    static _Thread_local volatile sig_atomic_t is_passing_on;
    int kept = errno;
    bool done = info->si_code > 0 && replace_with_zeros((uintptr_t)info->si_addr);
    errno = kept;
    if (done) return;
    bool is_default = is_passing_on || !previous.sa_handler || previous.sa_handler == SIG_IGN;
    is_passing_on = true; /* two handlers that each pass on to the other */
    if (is_default) {
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigaction(signal, &action, NULL);
        raise(signal); /* delivered when this handler returns */
    } else if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal, info, context);
    } else {
        previous.sa_handler(signal);
    }
    is_passing_on = false;
}

/* Libraries such as UCX may have replaced the handler since the last mapping. */
static void install_handler(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = (int)SA_SIGINFO}, now;
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (sigaction(SIGBUS, NULL, &now) || now.sa_sigaction == on_bus_error) return;
    previous = now;
    sigaction(SIGBUS, &action, NULL);
}

static struct file_guard *add_guard(const char *path, const struct stat *opened, uintptr_t begin)
{
    pthread_mutex_lock(&lock);
    install_handler();
    struct file_guard *g = unused_guards;
    if (g) {
        unused_guards = g->next_unused;
    } else {
        g = heap(sizeof *g);
        g->next = all_guards;
        all_guards = g;
    }
    pthread_mutex_unlock(&lock);
    g->path = heap_strdup(path);
    g->opened = *opened;
    g->is_modified = false;
    g->failed_at = INTACT;
    g->begin = begin;
    g->end = begin + ((uintptr_t)opened->st_size + page_bytes - 1) / page_bytes * page_bytes;
    return g;
}

static void remove_guard(struct file_guard *g)
{
    g->end = 0;
    free(g->path);
    g->path = NULL;
    pthread_mutex_lock(&lock);
    g->next_unused = unused_guards;
    unused_guards = g;
    pthread_mutex_unlock(&lock);
}

enum status file_map_open(struct file_map *m, const char *path)
{
    struct stat s;
    uint64_t size;
    int fd;
    *m = (struct file_map){0};
    TRY(file_open(path, &fd, &size));
    enum status st = STATUS_OK;
    if (fstat(fd, &s) != 0) FAIL_OUT(IO, "%s: %s", path, strerror(errno));
    if (!s.st_size) goto out;
    void *p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) FAIL_OUT(IO, "%s: mmap: %s", path, strerror(errno));
    m->data = p;
    m->size = (uint64_t)s.st_size;
    m->guard = add_guard(path, &s, (uintptr_t)p);
out:
    close(fd);
    return st;
}

void file_map_close(struct file_map *m)
{
    if (m->guard) remove_guard(m->guard);
    if (m->data) munmap((void *)(uintptr_t)m->data, m->size);
    *m = (struct file_map){0};
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static void warn_modified(const char *path)
{
    char shown[STATUS_TEXT];
    log_line(LOG_WARN, "%s: the file was modified while it was being read",
             escape_controls(shown, sizeof shown, path, ""));
}

/* A file of that name which was renamed into place is another one: the mapping keeps the old. */
enum status file_map_check(const struct file_map *m)
{
    struct file_guard *g = m->guard;
    struct stat now;
    if (!g) return STATUS_OK;
    unsigned long long size = m->size, failed_at = g->failed_at;
    bool is_same =
        !stat(g->path, &now) && now.st_dev == g->opened.st_dev && now.st_ino == g->opened.st_ino;
    if (is_same && (uint64_t)now.st_size < m->size)
        FAIL(DATA,
             "%s: the file was truncated from %llu to %llu bytes while it was being read: bytes "
             "from offset %llu on are lost",
             g->path, size, (unsigned long long)now.st_size, (unsigned long long)now.st_size);
    if (failed_at != INTACT)
        FAIL(IO,
             "%s: cannot read the byte at offset %llu of %llu: an I/O error, or the file was "
             "truncated for a moment",
             g->path, failed_at, size);
    if (is_same && !same_time(now.st_mtim, g->opened.st_mtim) &&
        !atomic_exchange(&g->is_modified, true))
        warn_modified(g->path);
    return STATUS_OK;
}

enum status file_map_check_after(const struct file_map *m, enum status st)
{
    TRY(file_map_check(m));
    return st;
}

/* A fault also maps neighboring pages, up to a whole large folio, so pages before `begin` that
 * were dropped once may be mapped again: drop 2 MiB before, too. */
void file_map_evict(const struct file_map *m, uint64_t begin, uint64_t end)
{
    enum { FOLIO = 2 << 20 };
    begin = begin < end && begin > FOLIO ? begin - FOLIO : begin < end ? 0 : begin;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t first = (begin + page - 1) / page * page, last = end / page * page;
    if (end > m->size || first >= last) return;
    madvise((void *)(uintptr_t)(m->data + first), last - first, MADV_DONTNEED);
}
