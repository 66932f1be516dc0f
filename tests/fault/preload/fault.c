/* fault.c -- makes one call of a program fail: the n-th `call` on an object whose name has `on`.
 *
 * With LD_PRELOAD set to this library and FAULT to, say,
 *
 *     call=write+fsync,on=checkpoint,nth=7,action=fail,errno=ENOSPC
 *
 * the program named llamero sees that call fail.  Keys (all but call have a default):
 *   call    names of CALL_LIST joined by "+", or "file": all those on files
 *   on      part of a path (of either path of a rename), of an MPI function's name, or, for malloc,
 *           of the file name of the library or program that allocates
 *   nth     1, 2, ...: which of the matching calls of this process
 *   times   how many calls from there on; 0: all later ones (a full disk)
 *   every   instead of nth: the first matching call after each so many seconds, again and again
 *   rank    only on this rank of a launcher
 *   action  fail: return errno without doing anything
 *           after: do it, then return errno (a server's reply that was lost)
 *           short: half of the bytes of a read or write
 *           full: the first call is short, the others fail, as on a disk that becomes full
 *           flip: one bit of the bytes that are read or written
 *           kill, term: the process gets SIGKILL, SIGTERM before the call
 *           delay: sleep for `ms` before the call
 *   errno   a name of ERRNO_LIST
 * FAULT_REPORT names a file; "fired CALL OBJECT" is appended to it when the fault happens, and
 * "calls N", the number of matching calls, when the process exits.
 *
 * Calls are counted where the program, or a library that it links, calls them through the dynamic
 * linker: not the reads and writes inside fread, fwrite and getdents.  malloc counts only
 * allocations of the program and of the libraries of ALLOCATORS: libgomp, oneDNN and MPI end the
 * process themselves when theirs fail. */
// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#ifdef FAULT_MPI
#include <mpi.h>
#endif

#define CALL_LIST(X)                                                                               \
    X(open)                                                                                        \
    X(read)                                                                                        \
    X(write)                                                                                       \
    X(fsync)                                                                                       \
    X(close)                                                                                       \
    X(rename)                                                                                      \
    X(unlink)                                                                                      \
    X(mkdir)                                                                                       \
    X(truncate)                                                                                    \
    X(opendir)                                                                                     \
    X(readdir)                                                                                     \
    X(stat)                                                                                        \
    X(lock)                                                                                        \
    X(mmap)                                                                                        \
    X(malloc)                                                                                      \
    X(mpi)
enum call {
#define X(name) CALL_##name,
    CALL_LIST(X)
#undef X
        NUM_CALLS
};
static const char *const call_names[] = {
#define X(name) #name,
    CALL_LIST(X)
#undef X
};

#define ERRNO_LIST(X)                                                                              \
    X(ENOSPC)                                                                                      \
    X(EDQUOT)                                                                                      \
    X(EIO)                                                                                         \
    X(ESTALE)                                                                                      \
    X(EINTR)                                                                                       \
    X(EACCES)                                                                                      \
    X(EROFS)                                                                                       \
    X(ENOENT)                                                                                      \
    X(EEXIST)                                                                                      \
    X(EMFILE)                                                                                      \
    X(ENODEV)                                                                                      \
    X(ENOMEM)

enum action { NONE, FAIL, AFTER, SHORT, FULL, FLIP, KILL, TERM, DELAY };
static const char *const action_names[] = {"none", "fail", "after", "short", "full",
                                           "flip", "kill", "term",  "delay"};

static struct {
    bool is_active;
    unsigned calls; /* a bit per enum call */
    char rank[8];   /* "": every process */
    char on[128];
    unsigned long long nth, times;
    enum action action;
    int error;
    long delay_ms;
    double every_s;
} fault;
static atomic_ullong matches, begin_ns, times_fired;

/* glibc's internal names, because dlsym allocates. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t each);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static void report(const char *fmt, ...)
{
    char line[512];
    const char *path = getenv("FAULT_REPORT");
    va_list ap;
    if (!path) return;
    va_start(ap, fmt);
    int len = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (len > (int)sizeof line - 1) len = sizeof line - 1;
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0666);
    if (fd < 0 || syscall(SYS_write, fd, line, (size_t)len) != len) _exit(99);
    syscall(SYS_close, fd);
}

static void die(const char *what)
{
    fprintf(stderr, "FAULT: %s\n", what);
    _exit(99);
}

static unsigned parse_calls(char *names)
{
    unsigned bits = 0, files = (1u << CALL_mmap) - 1;
    char *save;
    for (char *name = strtok_r(names, "+", &save); name; name = strtok_r(NULL, "+", &save)) {
        unsigned bit = strcmp(name, "file") ? 0 : files;
        for (int i = 0; i < NUM_CALLS; i++)
            if (!strcmp(name, call_names[i])) bit = 1u << i;
        if (!bit) die("unknown call");
        bits |= bit;
    }
    return bits;
}

static enum action parse_action(const char *name)
{
    for (enum action a = FAIL; a <= DELAY; a++)
        if (!strcmp(name, action_names[a])) return a;
    die("unknown action");
    return NONE;
}

static int parse_errno(const char *name)
{
#define X(error)                                                                                   \
    if (!strcmp(name, #error)) return error;
    ERRNO_LIST(X)
#undef X
    die("unknown errno");
    return 0;
}

static bool is_this_rank(const char *rank)
{
    static const char *const names[] = {"LLAMERO_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) return !strcmp(getenv(names[i]), rank);
    return !strcmp(rank, "0");
}

static unsigned long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec;
}

/* Whether a matching call is one that fails; *is_first: the n-th, or any of every_s. */
static bool is_due(bool *is_first)
{
    unsigned long long n = ++matches, fired = times_fired;
    *is_first = fault.every_s > 0 || n == fault.nth;
    if (!(fault.every_s > 0))
        return n >= fault.nth && (!fault.times || n - fault.nth < fault.times);
    double seconds = (double)(now_ns() - begin_ns) * 1e-9;
    return seconds >= fault.every_s * (double)(fired + 1) &&
           atomic_compare_exchange_strong(&times_fired, &fired, fired + 1);
}

__attribute__((constructor)) static void read_fault(void)
{
    char text[512], *save;
    const char *given = getenv("FAULT");
    bool is_mine = !strncmp(program_invocation_short_name, "llamero", 7);
    if (!given || !is_mine) return;
    fault.nth = fault.times = 1, fault.action = FAIL, fault.error = EIO;
    snprintf(text, sizeof text, "%s", given);
    for (char *key = strtok_r(text, ",", &save); key; key = strtok_r(NULL, ",", &save)) {
        char *value = strchr(key, '=');
        if (!value) die("expected key=value");
        *value++ = 0;
        if (!strcmp(key, "call"))
            fault.calls = parse_calls(value);
        else if (!strcmp(key, "on"))
            snprintf(fault.on, sizeof fault.on, "%s", value);
        else if (!strcmp(key, "nth"))
            fault.nth = strtoull(value, NULL, 10);
        else if (!strcmp(key, "times"))
            fault.times = strtoull(value, NULL, 10);
        else if (!strcmp(key, "every"))
            fault.every_s = strtod(value, NULL);
        else if (!strcmp(key, "rank"))
            snprintf(fault.rank, sizeof fault.rank, "%s", value);
        else if (!strcmp(key, "action"))
            fault.action = parse_action(value);
        else if (!strcmp(key, "errno"))
            fault.error = parse_errno(value);
        else if (!strcmp(key, "ms"))
            fault.delay_ms = strtol(value, NULL, 10);
        else
            die("unknown key");
    }
    begin_ns = now_ns();
    fault.is_active = is_mine;
}

/* Checked at each call: the program may fork its ranks. */
static bool is_active(void)
{
    return fault.is_active && (!fault.rank[0] || is_this_rank(fault.rank));
}

__attribute__((destructor)) static void write_count(void)
{
    if (is_active()) report("calls %llu\n", (unsigned long long)matches);
}

/* What to do about a call on `object` (or `other`, or the file of `fd`; NULL, -1: unused). */
static enum action act_on(enum call call, const char *object, const char *other, int fd)
{
    char path[512] = "";
    bool is_first;
    if (!(fault.calls >> call & 1) || !is_active()) return NONE;
    int before = errno;
    if (fd >= 0) {
        char link[32];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
        path[n < 0 ? 0 : n] = 0;
        object = path;
        errno = before;
        if (!strncmp(path, "pipe:", 5) || !strncmp(path, "socket:", 7)) object = "stream";
    }
    if (!object) object = "";
    if (fault.on[0] && !strstr(object, fault.on) && !(other && strstr(other, fault.on)))
        return NONE;
    if (!is_due(&is_first)) return NONE;
    if (is_first) report("fired %s %s\n", call_names[call], object);
    if (fault.action == KILL) kill(getpid(), SIGKILL);
    if (fault.action == TERM) kill(getpid(), SIGTERM);
    if (fault.action == DELAY) {
        struct timespec pause = {fault.delay_ms / 1000, fault.delay_ms % 1000 * 1000000};
        syscall(SYS_nanosleep, &pause, NULL);
    }
    errno = before;
    if (fault.action == FULL) return is_first ? SHORT : FAIL;
    return fault.action;
}

#define FAULTY(what, type, failed, real)                                                           \
    do {                                                                                           \
        enum action action_ = (what);                                                              \
        if (action_ == FAIL) return errno = fault.error, (failed);                                 \
        type got_ = (real);                                                                        \
        if (action_ == AFTER) return errno = fault.error, (failed);                                \
        return got_;                                                                               \
    } while (0)

/* O_TMPFILE contains the bit of O_DIRECTORY. */
static bool takes_mode(int flags) { return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; }

int openat(int folder, const char *path, int flags, ...)
{
    unsigned mode = 0;
    if (takes_mode(flags)) {
        va_list ap;
        va_start(ap, flags);
        mode = va_arg(ap, unsigned);
        va_end(ap);
    }
    FAULTY(act_on(CALL_open, path, NULL, -1), int, -1,
           (int)syscall(SYS_openat, folder, path, flags, mode));
}

int open(const char *path, int flags, ...)
{
    unsigned mode = 0;
    if (takes_mode(flags)) {
        va_list ap;
        va_start(ap, flags);
        mode = va_arg(ap, unsigned);
        va_end(ap);
    }
    return openat(AT_FDCWD, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    union {
        void *symbol;
        FILE *(*call)(const char *, const char *);
    } next = {dlsym(RTLD_NEXT, "fopen")};
    FAULTY(act_on(CALL_open, path, NULL, -1), FILE *, NULL, next.call(path, mode));
}

static void flip(void *bytes, size_t len)
{
    size_t bit = (size_t)(fault.nth * 2654435761u) % (len * 8);
    ((unsigned char *)bytes)[bit / 8] ^= (unsigned char)(1u << bit % 8);
}

static ssize_t read_at(int fd, void *to, size_t len, off_t at, bool has_offset)
{
    enum action a = act_on(CALL_read, NULL, NULL, fd);
    if (a == FAIL) return errno = fault.error, -1;
    if (a == SHORT && len > 1) len /= 2;
    ssize_t n = has_offset ? syscall(SYS_pread64, fd, to, len, at) : syscall(SYS_read, fd, to, len);
    if (a == FLIP && n > 0) flip(to, (size_t)n);
    return a == AFTER ? errno = fault.error, -1 : n;
}
ssize_t read(int fd, void *to, size_t len) { return read_at(fd, to, len, 0, false); }
ssize_t pread(int fd, void *to, size_t len, off_t at) { return read_at(fd, to, len, at, true); }

static ssize_t write_at(int fd, const void *from, size_t len, off_t at, bool has_offset)
{
    enum action a = act_on(CALL_write, NULL, NULL, fd);
    void *copy = NULL;
    if (a == FAIL) return errno = fault.error, -1;
    if (a == SHORT && len > 1) len /= 2;
    if (a == FLIP && len && (copy = __libc_malloc(len))) {
        memcpy(copy, from, len);
        flip(copy, len);
        from = copy;
    }
    ssize_t n =
        has_offset ? syscall(SYS_pwrite64, fd, from, len, at) : syscall(SYS_write, fd, from, len);
    if (copy) free(copy);
    return a == AFTER ? errno = fault.error, -1 : n;
}
ssize_t write(int fd, const void *from, size_t len) { return write_at(fd, from, len, 0, false); }
ssize_t pwrite(int fd, const void *from, size_t len, off_t at)
{
    return write_at(fd, from, len, at, true);
}

int fsync(int fd)
{
    FAULTY(act_on(CALL_fsync, NULL, NULL, fd), int, -1, (int)syscall(SYS_fsync, fd));
}

int fdatasync(int fd)
{
    FAULTY(act_on(CALL_fsync, NULL, NULL, fd), int, -1, (int)syscall(SYS_fdatasync, fd));
}

/* On Linux the descriptor is closed even when close fails. */
int close(int fd)
{
    enum action a = act_on(CALL_close, NULL, NULL, fd);
    int bad = (int)syscall(SYS_close, fd);
    if (a == FAIL || a == AFTER) return errno = fault.error, -1;
    return bad;
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    FAULTY(act_on(CALL_rename, from, to, -1), int, -1,
           (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlink(const char *path)
{
    FAULTY(act_on(CALL_unlink, path, NULL, -1), int, -1,
           (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

int rmdir(const char *path)
{
    FAULTY(act_on(CALL_unlink, path, NULL, -1), int, -1,
           (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}

int mkdir(const char *path, mode_t mode)
{
    FAULTY(act_on(CALL_mkdir, path, NULL, -1), int, -1,
           (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

int ftruncate(int fd, off_t len)
{
    FAULTY(act_on(CALL_truncate, NULL, NULL, fd), int, -1, (int)syscall(SYS_ftruncate, fd, len));
}

DIR *opendir(const char *path)
{
    union {
        void *symbol;
        DIR *(*call)(const char *);
    } next = {dlsym(RTLD_NEXT, "opendir")};
    FAULTY(act_on(CALL_opendir, path, NULL, -1), DIR *, NULL, next.call(path));
}

struct dirent *readdir(DIR *dir)
{
    union {
        void *symbol;
        struct dirent *(*call)(DIR *);
    } next = {dlsym(RTLD_NEXT, "readdir")};
    FAULTY(act_on(CALL_readdir, NULL, NULL, dirfd(dir)), struct dirent *, NULL, next.call(dir));
}

int stat(const char *path, struct stat *out)
{
    FAULTY(act_on(CALL_stat, path, NULL, -1), int, -1,
           (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, 0));
}

int lstat(const char *path, struct stat *out)
{
    FAULTY(act_on(CALL_stat, path, NULL, -1), int, -1,
           (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW));
}

int fstat(int fd, struct stat *out)
{
    FAULTY(act_on(CALL_stat, NULL, NULL, fd), int, -1, (int)syscall(SYS_fstat, fd, out));
}

int flock(int fd, int how)
{
    FAULTY(act_on(CALL_lock, NULL, NULL, fd), int, -1, (int)syscall(SYS_flock, fd, how));
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    const char *object = flags & MAP_ANONYMOUS ? "anonymous" : NULL;
    FAULTY(act_on(CALL_mmap, object, NULL, object ? -1 : fd), void *, MAP_FAILED,
           (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset));
}

static enum action act_on_allocation(void *caller)
{
    static const char *const ALLOCATORS[] = {"llamero", "cjson",  "pcre2", "libz",
                                             "zstd",    "brotli", "yaml",  "lz4"};
    Dl_info from;
    if (!fault.is_active || !(fault.calls >> CALL_malloc & 1)) return NONE;
    if (!dladdr(caller, &from) || !from.dli_fname) return NONE;
    const char *slash = strrchr(from.dli_fname, '/'), *name = slash ? slash + 1 : from.dli_fname;
    for (size_t i = 0; i < sizeof ALLOCATORS / sizeof *ALLOCATORS; i++)
        if (strstr(name, ALLOCATORS[i])) return act_on(CALL_malloc, name, NULL, -1);
    return NONE;
}
#define FAULTY_ALLOCATION(real)                                                                    \
    do {                                                                                           \
        if (act_on_allocation(__builtin_return_address(0)) == FAIL) return errno = ENOMEM, NULL;   \
        return (real);                                                                             \
    } while (0)

void *malloc(size_t size) { FAULTY_ALLOCATION(__libc_malloc(size)); }
void *calloc(size_t count, size_t each) { FAULTY_ALLOCATION(__libc_calloc(count, each)); }
void *realloc(void *old, size_t size) { FAULTY_ALLOCATION(__libc_realloc(old, size)); }
void *aligned_alloc(size_t alignment, size_t size)
{
    FAULTY_ALLOCATION(__libc_memalign(alignment, size));
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (act_on_allocation(__builtin_return_address(0)) == FAIL) return ENOMEM;
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}

#ifdef FAULT_MPI
#define FAULTY_MPI(name, parameters, arguments)                                                    \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        FAULTY(act_on(CALL_mpi, "MPI_" #name, NULL, -1), int, MPI_ERR_OTHER,                       \
               PMPI_##name arguments);                                                             \
    }
FAULTY_MPI(Init_thread, (int *argc, char ***argv, int needs, int *has), (argc, argv, needs, has))
FAULTY_MPI(Comm_dup, (MPI_Comm comm, MPI_Comm *out), (comm, out))
FAULTY_MPI(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *out), (comm, color, key, out))
FAULTY_MPI(Isend,
           (const void *x, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
            MPI_Request *out),
           (x, count, type, peer, tag, comm, out))
FAULTY_MPI(Irecv,
           (void *x, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
            MPI_Request *out),
           (x, count, type, peer, tag, comm, out))
FAULTY_MPI(Ibcast,
           (void *x, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *out),
           (x, count, type, root, comm, out))
FAULTY_MPI(Iallgather,
           (const void *x, int count, MPI_Datatype type, void *all, int all_count,
            MPI_Datatype all_type, MPI_Comm comm, MPI_Request *out),
           (x, count, type, all, all_count, all_type, comm, out))
FAULTY_MPI(Ibarrier, (MPI_Comm comm, MPI_Request *out), (comm, out))
FAULTY_MPI(Test, (MPI_Request * request, int *done, MPI_Status *status), (request, done, status))
FAULTY_MPI(Testall, (int count, MPI_Request *requests, int *done, MPI_Status *statuses),
           (count, requests, done, statuses))
FAULTY_MPI(Finalize, (void), ())
#endif
