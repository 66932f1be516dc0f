/* megatron_sum.h -- PREFIX.sum: sizes and checksums of PREFIX.bin and PREFIX.idx, which `llamero
 * prepare` writes beside them.
 *
 * File     JSON: {"format": 1, "chunk_bytes": 16777216, "bin": {"size": n, "crc32c": ["...", ...]},
 *          "idx": ..., "sum_crc32c": "..."}: a CRC-32C per 16 MiB, and last that of the file itself
 *          (json_end_checksummed).  Other programs' pairs have no such file and are not checked. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

enum { MEGATRON_SUM_CHUNK = 16 << 20 };

/* The checksums of one file, read or written from its start. */
struct megatron_sum {
    uint64_t bytes;
    uint32_t *crcs; /* of the chunks, the last one of what it has so far; owned */
    size_t count;
};
void megatron_sum_add(struct megatron_sum *s, const void *bytes, size_t len);
void megatron_sum_release(struct megatron_sum *s);
uint32_t megatron_sum_digest(const struct megatron_sum *s); /* of all checksums */

/* Writes PREFIX.sum atomically. */
enum status megatron_sum_write(const char *prefix, const struct megatron_sum *bin,
                               const struct megatron_sum *idx);

/* Compares both sizes and the bytes of the .idx with PREFIX.sum, if that exists.  DATA: they
 * differ, or PREFIX.sum is damaged.  IO. */
enum status megatron_sum_check(const char *prefix, uint64_t bin_bytes, const void *idx,
                               size_t idx_bytes);
/* Reads every byte of the pair and appends a line for each error.  *bytes: of both files.  MISSING:
 * no PREFIX.sum. */
enum status megatron_sum_verify(const char *prefix, struct text *errors, uint64_t *bytes);
/* Whether PREFIX.sum exists; `prefix` may end in .bin, .idx or .sum, which *len excludes. */
bool megatron_sum_exists(const char *prefix, size_t *len);
