/* fail_writes.c -- makes writing to some files fail, as on a full disk.
 *
 * With LD_PRELOAD set to this library, and FAIL_WRITES to a part of a path, calls of write to such
 * files fail with ENOSPC, from the FAIL_FROM-th to the FAIL_TO-th.  The first of them writes half
 * of its bytes, as a disk does that becomes full. */
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_chosen(int fd)
{
    char link[64], path[PATH_MAX];
    const char *part = getenv("FAIL_WRITES");
    if (!part) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return false;
    path[n] = 0;
    return strstr(path, part);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
    static atomic_int calls;
    if (is_chosen(fd)) {
        const char *from = getenv("FAIL_FROM"), *to = getenv("FAIL_TO");
        int call = ++calls, first = from ? atoi(from) : 1, last = to ? atoi(to) : INT_MAX;
        if (call == first && len > 1) len /= 2;
        if (call > first && call <= last) {
            errno = ENOSPC;
            return -1;
        }
    }
    return syscall(SYS_write, fd, bytes, len);
}
