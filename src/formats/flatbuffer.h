/* flatbuffer.h -- reads untrusted FlatBuffers, such as the metadata of Arrow messages.
 *
 * Positions are offsets from the start of the buffer. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A read past the end returns 0 and sets `bad`. */
struct flatbuffer {
    const unsigned char *data;
    uint64_t size;
    bool bad;
};

/* A little-endian integer. */
static inline uint64_t flatbuffer_read(struct flatbuffer *f, uint64_t at, unsigned bytes)
{
    uint64_t value = 0;
    if (at > f->size || bytes > f->size - at) {
        f->bad = true;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++) value |= (uint64_t)f->data[at + i] << (8 * i);
    return value;
}

/* The position of a table's field; 0 if the field is absent. */
static inline uint64_t flatbuffer_field(struct flatbuffer *f, uint64_t table, unsigned slot)
{
    uint64_t vtable = table - (uint64_t)(int64_t)(int32_t)(uint32_t)flatbuffer_read(f, table, 4);
    if (4 + 2 * slot + 2 > flatbuffer_read(f, vtable, 2)) return 0;
    uint64_t offset = flatbuffer_read(f, vtable + 4 + 2 * slot, 2);
    return offset ? table + offset : 0;
}

/* The value of a scalar field; 0 if the field is absent. */
static inline uint64_t flatbuffer_scalar(struct flatbuffer *f, uint64_t table, unsigned slot,
                                         unsigned bytes)
{
    uint64_t at = flatbuffer_field(f, table, slot);
    return at ? flatbuffer_read(f, at, bytes) : 0;
}

/* The position of the table, vector or string that a field points to; 0 if the field is absent. */
static inline uint64_t flatbuffer_target(struct flatbuffer *f, uint64_t table, unsigned slot)
{
    uint64_t at = flatbuffer_field(f, table, slot);
    return at ? at + flatbuffer_read(f, at, 4) : 0;
}

/* Returns the number of items of `each` bytes in a vector, all of which are inside the buffer, and
 * sets *first to the position of the first one. */
static inline uint64_t flatbuffer_vector(struct flatbuffer *f, uint64_t table, unsigned slot,
                                         unsigned each, uint64_t *first)
{
    uint64_t vector = flatbuffer_target(f, table, slot),
             count = vector ? flatbuffer_read(f, vector, 4) : 0;
    *first = vector + 4;
    if (f->bad || (count && count > (f->size - *first) / each)) {
        f->bad = true;
        return 0;
    }
    return count;
}
