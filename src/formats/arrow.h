/* arrow.h -- one column of an Arrow file, in the IPC stream or IPC file format, as Hugging Face
 * `datasets` writes it.
 *
 * The file is a sequence of messages: the schema, dictionary batches, then record batches.  The
 * buffers of a record batch have their in-memory layout, optionally compressed, so a row is found
 * by its number without a scan.
 * Memory   The file is mapped.  For each record batch we keep the addresses of the column's
 *          buffers.  Dictionary batches are decompressed when the file is opened.
 * Source   Arrow columnar format 1.5: Message.fbs, Schema.fbs, File.fbs. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/arrow_types.h"

/* Opens the file and finds the column by name, with the syntax of parquet_find.  CONFIG: unknown
 * column.  DATA: corrupt or truncated.  UNSUPPORTED: big-endian data, or an unknown type. */
enum status arrow_open(struct arrow *a, const char *path, const char *column);
void arrow_close(struct arrow *a);
/* arrow_open for a file image that the caller keeps.  The caller sets a->path, and calls
 * arrow_close even after a failure. */
enum status arrow_parse(struct arrow *a, const unsigned char *bytes, uint64_t size,
                        const char *column);

/* The record batch that holds `row`, which must be less than num_rows. */
const struct arrow_batch *arrow_find_batch(const struct arrow *a, uint64_t row);

/* Decompresses a buffer into `storage` and points *buffer at the result.  A buffer that is stored
 * uncompressed stays where it is.  DATA, UNSUPPORTED. */
enum status arrow_decompress(const struct arrow *a, enum codec codec, struct byte_span *buffer,
                             struct text *storage);

/* Splits a batch into ranges of rows.  Returns the end of a range that begins at `row` and holds
 * about *bytes of the column, and sets *bytes to the estimated size.  The range ends at its batch
 * or before; if the batch is compressed, it has at least an eighth of the batch's rows. */
uint64_t arrow_range_end(const struct arrow *a, uint64_t row, uint64_t *bytes);
