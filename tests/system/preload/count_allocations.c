/* count_allocations.c -- counts a program's calls of the allocator, and its page faults.
 *
 * With LD_PRELOAD set to this library and COUNT_ALLOCATIONS to a path, the program writes that file
 * when it exits: the number of calls of malloc, its relatives and mmap; on the second line those of
 * oneDNN, which allocates argument lists for every matrix multiply (calls are attributed to it and
 * to libstdc++ by the caller's address); on the third line minor page faults. */
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc's internal names, because dlsym allocates. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t each);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static atomic_ullong own, onednns;

static void note(void *caller)
{
    Dl_info from;
    bool theirs = dladdr(caller, &from) && from.dli_fname &&
                  (strstr(from.dli_fname, "libdnnl") || strstr(from.dli_fname, "libstdc++"));
    if (theirs)
        onednns++;
    else
        own++;
}
#define NOTE note(__builtin_return_address(0))

void *malloc(size_t size)
{
    NOTE;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t each)
{
    NOTE;
    return __libc_calloc(count, each);
}

void *realloc(void *old, size_t size)
{
    NOTE;
    return __libc_realloc(old, size);
}

void *reallocarray(void *old, size_t count, size_t each)
{
    size_t size;
    NOTE;
    if (__builtin_mul_overflow(count, each, &size)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size)
{
    NOTE;
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    NOTE;
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    NOTE;
    if (alignment % sizeof(void *) || !alignment || (alignment & (alignment - 1))) return EINVAL;
    void *p = __libc_memalign(alignment, size);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

/* The same as mmap64 where file offsets have 64 bits. */
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    NOTE;
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}

__attribute__((destructor)) static void write_count(void)
{
    char text[64];
    const char *path = getenv("COUNT_ALLOCATIONS");
    unsigned long long counts[] = {own, onednns};
    struct rusage used = {0};
    if (!path) return;
    getrusage(RUSAGE_SELF, &used);
    int len =
        snprintf(text, sizeof text, "%llu\n%llu\n%ld\n", counts[0], counts[1], used.ru_minflt);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, text, (size_t)len) != len) _exit(74);
    close(fd);
}
