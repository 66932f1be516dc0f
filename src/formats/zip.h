/* zip.h -- ZIP archives whose entries are stored as they are, as torch writes them; ZIP64, too.
 *
 * Reading goes by the central directory; an entry's bytes begin where its own header says.
 * Memory   Entries point into the archive's bytes, which are borrowed.
 * Order    Entries are sorted by name. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct zip_entry {
    const char *name; /* not ended by a NUL */
    size_t name_len;
    const unsigned char *data;
    uint64_t size;
    uint32_t crc; /* 0: torch leaves it out where it is told to */
};

struct zip {
    struct zip_entry *entries; /* owned */
    size_t count;
};

/* DATA: the directory is missing or lies, an entry is not in the bytes, two have one name.
 * UNSUPPORTED: an entry is compressed, encrypted, or on another disk.  After a failure, too,
 * release it. */
enum status zip_parse(struct zip *z, const unsigned char *bytes, uint64_t size, const char *name);
void zip_release(struct zip *z);

/* NULL: there is none of that name. */
const struct zip_entry *zip_find(const struct zip *z, const char *name, size_t name_len);
/* The bytes have the checksum they were written with; one of 0 is not looked at. */
bool zip_entry_is_sound(const struct zip_entry *e);

/* An archive in the making, its entries one behind the other. */
struct zip_writer {
    struct text directory;
    uint64_t at; /* where the next entry begins */
    uint64_t count;
};

enum { ZIP_ALIGN = 64 };

/* The header of an entry of `size` bytes into `head` (cleared first); its bytes begin behind it, at
 * a multiple of ZIP_ALIGN of the archive.  The entry is then written. */
void zip_add(struct zip_writer *w, const char *name, uint64_t size, uint32_t crc,
             struct text *head);
/* How long that header will be. */
uint64_t zip_head_bytes(const struct zip_writer *w, const char *name);
/* What comes behind the last entry, into `tail` (cleared first). */
void zip_finish(struct zip_writer *w, struct text *tail);
void zip_writer_release(struct zip_writer *w);

/* CRC-32 as ZIP has it, continued from `crc` (0 to begin). */
uint32_t zip_crc(uint32_t crc, const void *bytes, size_t len);
