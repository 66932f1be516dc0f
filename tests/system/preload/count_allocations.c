/* count_allocations.c -- counts what a program asks of the allocator.
 *
 * With LD_PRELOAD set to this library and COUNT_ALLOCATIONS to a path, that file holds, once the
 * program has ended by itself, the number of calls of malloc and its kin and of mmap. */
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc's own names: found without dlsym, which allocates. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t each);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static atomic_ullong calls;

void *malloc(size_t size)
{
    calls++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t each)
{
    calls++;
    return __libc_calloc(count, each);
}

void *realloc(void *old, size_t size)
{
    calls++;
    return __libc_realloc(old, size);
}

void *reallocarray(void *old, size_t count, size_t each)
{
    size_t size;
    calls++;
    if (__builtin_mul_overflow(count, each, &size)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size)
{
    calls++;
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    calls++;
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    calls++;
    if (alignment % sizeof(void *) || !alignment || (alignment & (alignment - 1))) return EINVAL;
    void *p = __libc_memalign(alignment, size);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

/* The same as mmap64 where file offsets have 64 bits. */
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    calls++;
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}

__attribute__((destructor)) static void write_count(void)
{
    char text[32];
    const char *path = getenv("COUNT_ALLOCATIONS");
    unsigned long long count = calls;
    if (!path) return;
    int len = snprintf(text, sizeof text, "%llu\n", count);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, text, (size_t)len) != len) _exit(74);
    close(fd);
}
