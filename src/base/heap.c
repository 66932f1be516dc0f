// SPDX-License-Identifier: Apache-2.0
#include "base/heap.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

void *heap(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) BUG("out of memory for a small table");
    return p;
}

void *heap_grow(void *old, size_t count, size_t each)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes)) BUG("a table is larger than memory");
    void *p = realloc(old, bytes ? bytes : 1);
    if (!p) BUG("out of memory for a small table");
    return p;
}

char *heap_string(const char *string, size_t len)
{
    char *copy = heap(len + 1);
    memcpy(copy, string, len);
    return copy;
}
