/* The shadow of memory that kernels may access, and the allocations of the host that it follows:
 * the linker redirects calls of malloc to __wrap_malloc (--wrap). */
// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"
#include "base/status.h"
#include "memcheck/memcheck.h"

#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { ADDRESS_BITS = 47, CHUNK_BITS = 16, TABLE_BITS = 16, RED_ZONE = ARENA_ALIGN };

static struct chunk **tables[1 << (ADDRESS_BITS - CHUNK_BITS - TABLE_BITS)];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Zeroed memory, without pages until it is written. */
static void *map(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    BUG_IF(at == MAP_FAILED);
    return at;
}

struct chunk *shadow_chunk(const void *at)
{
    uintptr_t chunk = (uintptr_t)at >> CHUNK_BITS;
    struct chunk **table =
        chunk >> TABLE_BITS < sizeof tables / sizeof *tables ? tables[chunk >> TABLE_BITS] : NULL;
    return table ? table[chunk % (1 << TABLE_BITS)] : NULL;
}

static void make_chunk(uintptr_t at)
{
    struct chunk ***table = &tables[at >> CHUNK_BITS >> TABLE_BITS];
    if (!*table) *table = map((1 << TABLE_BITS) * sizeof **table);
    (*table)[(at >> CHUNK_BITS) % (1 << TABLE_BITS)] = map(sizeof(struct chunk));
}

/* The state of `bytes` or fewer bytes, whose number it returns in `n`; NULL: they have no chunk,
 * which means state 0. */
static uint8_t *states_of(uintptr_t at, size_t bytes, size_t *n)
{
    struct chunk *chunk = shadow_chunk((const void *)at);
    size_t left = CHUNK_BYTES - at % CHUNK_BYTES;
    *n = bytes < left ? bytes : left;
    return chunk ? chunk->state + at % CHUNK_BYTES : NULL;
}

void shadow_set(const void *from, size_t bytes, uint8_t state)
{
    pthread_mutex_lock(&lock);
    for (uintptr_t at = (uintptr_t)from, n; bytes; at += n, bytes -= n) {
        if (state && !shadow_chunk((const void *)at)) make_chunk(at);
        uint8_t *states = states_of(at, bytes, &n);
        if (states) memset(states, state, n);
    }
    pthread_mutex_unlock(&lock);
}

void shadow_set_written(const void *from, size_t bytes)
{
    pthread_mutex_lock(&lock);
    for (uintptr_t at = (uintptr_t)from, n; bytes; at += n, bytes -= n) {
        uint8_t *states = states_of(at, bytes, &n);
        for (size_t i = 0; states && i < n; i++)
            if (states[i] & ALLOCATED) states[i] |= WRITTEN;
    }
    pthread_mutex_unlock(&lock);
}

/* --- the heap: the host may write it at any time, so all of it counts as written --- */

void *__real_malloc(size_t bytes), *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t each), *__wrap_calloc(size_t count, size_t each);
void *__real_realloc(void *old, size_t bytes), *__wrap_realloc(void *old, size_t bytes);
void __real_free(void *at), __wrap_free(void *at);

void *__wrap_malloc(size_t bytes)
{
    void *at = __real_malloc(bytes);
    if (at) shadow_set(at, bytes, HOST | WRITTEN);
    return at;
}

void *__wrap_calloc(size_t count, size_t each)
{
    void *at = __real_calloc(count, each);
    if (at) shadow_set(at, count * each, HOST | WRITTEN);
    return at;
}

void *__wrap_realloc(void *old, size_t bytes)
{
    shadow_set(old, malloc_usable_size(old), 0);
    void *at = __real_realloc(old, bytes);
    if (at) shadow_set(at, bytes, HOST | WRITTEN);
    return at;
}

void __wrap_free(void *at)
{
    shadow_set(at, malloc_usable_size(at), 0);
    __real_free(at);
}

/* --- arenas --- */

void *__real_arena_alloc(struct arena *a, size_t count, size_t each);
void *__wrap_arena_alloc(struct arena *a, size_t count, size_t each);
enum status __real_arena_init(struct arena *a, size_t size, const struct allocator *allocator);
enum status __wrap_arena_init(struct arena *a, size_t size, const struct allocator *allocator);
void __real_arena_release(struct arena *a), __wrap_arena_release(struct arena *a);

static const struct allocator *host; /* as in arena.c */

/* Arenas of device memory stay one allocation: kernels that were submitted earlier may still have
 * to run when an arena is used again.  Sizing arenas may become either. */
static bool has_red_zones(const struct arena *a) { return !a->allocator || a->allocator == host; }

/* With space for red zones, of which a caller that adds up sizes does not know. */
enum status __wrap_arena_init(struct arena *a, size_t size, const struct allocator *allocator)
{
    enum status st =
        __real_arena_init(a, size && !allocator ? 2 * size + CHUNK_BYTES : size, allocator);
    if (!allocator) host = a->allocator;
    return st;
}

void __wrap_arena_release(struct arena *a)
{
    if (has_red_zones(a)) shadow_set(a->base, a->size, 0);
    __real_arena_release(a);
}

void *__wrap_arena_alloc(struct arena *a, size_t count, size_t each)
{
    unsigned char *at = __real_arena_alloc(a, count, each);
    if (!has_red_zones(a)) return at;
    unsigned char *end = __real_arena_alloc(a, 1, RED_ZONE);
    if (at) shadow_set(at, (size_t)(end + RED_ZONE - at), 0);
    if (at) shadow_set(at, count * each, ALLOCATED);
    return at;
}
