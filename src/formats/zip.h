/* zip.h -- reads and writes ZIP archives of stored (uncompressed) entries, as PyTorch writes them;
 * ZIP64 included.
 *
 * The reader follows the central directory; the local header gives the start of an entry's data.
 * Memory   Entries point into the archive's bytes, which are borrowed.
 * Order    Entries are sorted by name.
 * Source   PKWARE, APPNOTE.TXT. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct zip_entry {
    const char *name; /* not NUL-terminated */
    size_t name_len;
    const unsigned char *data;
    uint64_t size;
    uint32_t crc; /* 0: not computed, an option of torch.save */
};

struct zip {
    struct zip_entry *entries; /* owned */
    size_t count;
};

/* DATA: the central directory is missing or corrupt, an entry exceeds the archive, or a name occurs
 * twice.  UNSUPPORTED: an entry is compressed or encrypted, or the archive spans disks.  Release
 * `z` even after a failure. */
enum status zip_parse(struct zip *z, const unsigned char *bytes, uint64_t size, const char *name);
void zip_release(struct zip *z);

/* Finds an entry by name; NULL if it does not exist. */
const struct zip_entry *zip_find(const struct zip *z, const char *name, size_t name_len);
/* Verifies the entry's CRC-32; true if the CRC is 0. */
bool zip_entry_crc_ok(const struct zip_entry *e);

/* An archive that is being written, entry by entry. */
struct zip_writer {
    struct text directory;
    uint64_t at; /* offset of the next local header */
    uint64_t count;
};

enum { ZIP_ALIGN = 64 };

/* Adds an entry of `size` bytes, and stores its local header in `head` (cleared first).  The header
 * is padded so that the data after it is aligned to ZIP_ALIGN.  The caller then writes both. */
void zip_writer_add(struct zip_writer *w, const char *name, uint64_t size, uint32_t crc,
                    struct text *head);
/* The length of that local header. */
uint64_t zip_writer_header_bytes(const struct zip_writer *w, const char *name);
/* Stores the central directory and the end records in `tail` (cleared first). */
void zip_writer_finish(struct zip_writer *w, struct text *tail);
void zip_writer_release(struct zip_writer *w);

/* CRC-32 as in ZIP, continued from `crc` (0 to begin). */
uint32_t zip_crc(uint32_t crc, const void *bytes, size_t len);
