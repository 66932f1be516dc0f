/* arena.h -- bump allocation from one block whose size is computed before it is mapped.
 *
 * A zeroed arena is a sizing arena: arena_alloc returns NULL and only adds up sizes.  The same
 * code then runs over an arena of that size and allocates exactly those bytes.
 * Units    Bytes.  Every allocation is aligned to 64 bytes.
 * Memory   arena_init maps and touches all pages, so none fault later; arena_release unmaps them.
 *          Allocations are not freed one by one: arena_mark and arena_reset unwind, as a stack. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { ARENA_ALIGN = 64 };

/* Where an arena gets its block: host memory, or memory of a device. */
struct allocator {
    enum status (*alloc)(size_t size, void **out); /* zeroed */
    void (*free)(void *at, size_t size);
};

struct arena {
    unsigned char *base;               /* NULL in a sizing arena */
    const struct allocator *allocator; /* borrowed; NULL: host memory */
    size_t size;                       /* bytes mapped; 0 in a sizing arena */
    size_t used, peak;
    bool overflow; /* a sizing arena's total does not fit size_t */
};

/* Maps `size` bytes, zeroed and touched, from `allocator` (NULL: host memory).  MEMORY: not
 * enough. */
enum status arena_init(struct arena *a, size_t size, const struct allocator *allocator);
void arena_release(struct arena *a);

/* The next `count` * `each` bytes; NULL from a sizing arena.  Running past the end is a BUG. */
void *arena_alloc(struct arena *a, size_t count, size_t each);
static inline size_t arena_mark(const struct arena *a) { return a->used; }
static inline void arena_reset(struct arena *a, size_t mark) { a->used = mark; }
