/* flatbuffer.h -- flatbuffers that nobody vouches for, as Arrow's messages are. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A flatbuffer: whatever lies beyond its end is 0, and `bad` is set. */
struct flat {
    const unsigned char *data;
    uint64_t size;
    bool bad;
};

static inline uint64_t flat_number(struct flat *f, uint64_t at, unsigned bytes)
{
    uint64_t value = 0;
    if (at > f->size || bytes > f->size - at) {
        f->bad = true;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++) value |= (uint64_t)f->data[at + i] << (8 * i);
    return value;
}

/* Where a table's field lies; 0: it has none. */
static inline uint64_t flat_field(struct flat *f, uint64_t table, unsigned slot)
{
    uint64_t vtable = table - (uint64_t)(int64_t)(int32_t)(uint32_t)flat_number(f, table, 4);
    if (4 + 2 * slot + 2 > flat_number(f, vtable, 2)) return 0;
    uint64_t offset = flat_number(f, vtable + 4 + 2 * slot, 2);
    return offset ? table + offset : 0;
}

static inline uint64_t flat_scalar(struct flat *f, uint64_t table, unsigned slot, unsigned bytes)
{
    uint64_t at = flat_field(f, table, slot);
    return at ? flat_number(f, at, bytes) : 0;
}

/* Where the table, vector or string that a field points to lies; 0: it has none. */
static inline uint64_t flat_pointed(struct flat *f, uint64_t table, unsigned slot)
{
    uint64_t at = flat_field(f, table, slot);
    return at ? at + flat_number(f, at, 4) : 0;
}

/* Items of `each` bytes that are all there; *first: where. */
static inline uint64_t flat_items(struct flat *f, uint64_t table, unsigned slot, unsigned each,
                                  uint64_t *first)
{
    uint64_t vector = flat_pointed(f, table, slot), count = vector ? flat_number(f, vector, 4) : 0;
    *first = vector + 4;
    if (f->bad || (count && count > (f->size - *first) / each)) {
        f->bad = true;
        return 0;
    }
    return count;
}
