/* wandb_log.h -- the .wandb file of Weights & Biases: a log in LevelDB's format.
 *
 * The file begins with ":W&B", u16 0xBEE1 and u8 version 0.  Then come blocks of 32 KiB, the first
 * of which includes those 7 bytes.  A record is one or more chunks: u32 CRC-32 of the type and the
 * data, u16 length, u8 type (1 full, 2 first, 3 middle, 4 last), the data; no chunk crosses a
 * block, and fewer than 7 bytes at the end of a block are zeros.  All is little-endian.
 * Memory   The writer appends to a text; the reader copies a record of several chunks.
 * Source   wandb/sdk/internal/datastore.py of wandb 0.19; LevelDB's doc/log_format.md, which has
 *          masked CRC-32C instead. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

void wandb_log_begin(struct text *t);
/* Appends a record that will be at `offset` of the file. */
void wandb_log_add(struct text *t, uint64_t offset, const void *record, size_t len);

struct wandb_log_reader {
    const char *bytes;
    size_t len, at;
    struct text record;
};
/* False: not such a file. */
bool wandb_log_open(struct wandb_log_reader *r, const char *bytes, size_t len);
void wandb_log_close(struct wandb_log_reader *r);
/* Reads the next record into r->record.  False at the end, and where the log is cut off or
 * corrupt; r->at is then where the last whole record ends. */
bool wandb_log_next(struct wandb_log_reader *r);
