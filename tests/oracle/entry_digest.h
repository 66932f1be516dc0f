/* entry_digest.h -- a digest of a column's entries: their number and the CRC-32 over (u8 rep, u8
 * def, value) of each, with which tests/oracle/parquet.py compares what pyarrow reads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/column_entry.h"

#include <zlib.h>

struct entry_digest {
    uint64_t entries;
    uint32_t crc;
};

static inline void entry_digest_add_number(struct entry_digest *d, uint64_t value, size_t bytes)
{
    unsigned char le[8];
    for (size_t i = 0; i < bytes; i++) le[i] = (unsigned char)(value >> (8 * i));
    d->crc = (uint32_t)crc32_z(d->crc, le, bytes);
}

/* Numbers have 8 bytes; strings are preceded by their length in 4 bytes. */
static inline void entry_digest_add(struct entry_digest *d, const struct column_entry *e,
                                    bool is_bytes)
{
    d->entries++;
    entry_digest_add_number(d, (uint64_t)e->rep, 1);
    entry_digest_add_number(d, (uint64_t)e->def, 1);
    if (!e->has_value) return;
    entry_digest_add_number(d, is_bytes ? e->bytes.len : (uint64_t)e->number, is_bytes ? 4 : 8);
    if (is_bytes && e->bytes.len) d->crc = (uint32_t)crc32_z(d->crc, e->bytes.data, e->bytes.len);
}
