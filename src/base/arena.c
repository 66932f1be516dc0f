// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"

#include "base/byte_size.h"

#include <stdlib.h>
#include <sys/mman.h>

static enum status host_alloc(size_t size, void **out)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        FAIL(MEMORY,
             "not enough memory: %s required; `llamero plan` lists what needs it, and "
             "`llamero plan --fit` settings that need less",
             byte_size_format((double)size).text);
    madvise(p, size, MADV_HUGEPAGE); /* best effort: fewer page faults and TLB misses */
    /* NUMA first touch: a page is placed on the NUMA node of the thread that first writes it.  The
     * static schedule spreads the pages over the nodes of all compute threads. */
    enum { CHUNK = 1 << 22, LARGE = 1 << 28, PAGE = 1 << 12 };
#pragma omp parallel for schedule(static) if (size > LARGE)
    for (size_t at = 0; at < size; at += CHUNK)
        for (size_t i = at; i < size && i < at + CHUNK; i += PAGE)
            ((volatile unsigned char *)p)[i] = 0; /* the system has zeroed the rest */
    *out = p;
    return STATUS_OK;
}

static void host_free(void *at, size_t size) { munmap(at, size); }

static const struct allocator host = {host_alloc, host_free};

enum status arena_init(struct arena *a, size_t size, const struct allocator *allocator)
{
    *a = (struct arena){.size = size, .allocator = allocator ? allocator : &host};
    if (!size) return STATUS_OK;
    void *base;
    TRY(a->allocator->alloc(size, &base));
    a->base = base;
    return STATUS_OK;
}

void arena_release(struct arena *a)
{
    if (a->base) a->allocator->free(a->base, a->size);
    *a = (struct arena){0};
}

void *arena_alloc(struct arena *a, size_t count, size_t each)
{
    size_t bytes, padded, end;
    if (__builtin_mul_overflow(count, each, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)ARENA_ALIGN - 1, &padded) ||
        __builtin_add_overflow(a->used, padded / ARENA_ALIGN * ARENA_ALIGN, &end)) {
        BUG_IF(a->base);
        a->overflow = true;
        return NULL;
    }
    void *p = a->base ? a->base + a->used : NULL;
    BUG_IF(a->base && end > a->size);
    a->used = end;
    if (end > a->peak) a->peak = end;
    return p;
}
