// SPDX-License-Identifier: Apache-2.0
#include "base/heap.h"

#include "base/status.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Nothing here may allocate. */
static void fail(size_t bytes) __attribute__((noreturn));
static void fail(size_t bytes)
{
    char line[256];
    int len =
        snprintf(line, sizeof line,
                 "error: out of memory: %zu bytes requested; `llamero plan CONFIG` lists what a "
                 "run needs\n",
                 bytes);
    ssize_t written = write(STDERR_FILENO, line, (size_t)len);
    (void)written;
    _exit(status_exit_code(STATUS_MEMORY));
}

void *heap(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) fail(bytes);
    return p;
}

void *heap_grow(void *old, size_t count, size_t each)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes)) fail(SIZE_MAX);
    void *p = realloc(old, bytes ? bytes : 1);
    if (!p) fail(bytes);
    return p;
}

char *heap_string(const char *string, size_t len)
{
    char *copy = heap(len + 1);
    memcpy(copy, string, len);
    return copy;
}

char *heap_strdup(const char *string) { return heap_string(string, strlen(string)); }
