/* arena.h -- memory that is counted before it is used.
 *
 * An arena without memory measures: arena_take returns NULL and only adds up.  The same code run
 * a second time over a filled arena takes exactly those bytes, so a plan is exact by construction.
 * Units    Bytes.  Every piece starts on a 64-byte boundary.
 * Memory   arena_init maps and touches all of it, so no page faults come later; arena_release
 *          gives it back.  Pieces are never freed singly: arena_mark / arena_reset unwind. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { ARENA_ALIGN = 64 };

/* Where the memory of arenas comes from. */
struct memory {
    enum status (*take)(size_t size, void **out); /* zeroed */
    void (*give)(void *at, size_t size);
};

struct arena {
    unsigned char *base;         /* NULL while measuring */
    const struct memory *memory; /* NULL: the host's */
    size_t size;                 /* bytes mapped; 0 while measuring */
    size_t used, peak;
    bool overflow; /* a size was beyond size_t while measuring */
};

/* Takes `size` bytes, zeroed and touched; `memory` NULL: the host's.  MEMORY: there are not so
 * many.
 */
enum status arena_init(struct arena *a, size_t size, const struct memory *memory);
void arena_release(struct arena *a);

/* Next `count` * `each` bytes; NULL while measuring.  Taking more than was measured is a BUG. */
void *arena_take(struct arena *a, size_t count, size_t each);
static inline size_t arena_mark(const struct arena *a) { return a->used; }
static inline void arena_reset(struct arena *a, size_t mark) { a->used = mark; }
