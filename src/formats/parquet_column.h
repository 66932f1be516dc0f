/* parquet_column.h -- reads one column of a Parquet file, entry by entry, from any row on.
 *
 * Memory   One decompressed page, and the dictionary of its column chunk.
 * Seek     A row is found by its row group and then by page headers.  Only pages of nested lists
 *          have to be decompressed to count their rows. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/column_entry.h"
#include "formats/parquet_values.h"

struct parquet_column {
    const struct parquet *file; /* borrowed */
    const struct parquet_leaf *leaf;
    size_t group;         /* the current row group */
    uint64_t row;         /* of the next entry that starts a row */
    uint64_t values_read; /* entries of the chunk in pages up to the current one */
    struct reader pages;  /* at the next page header */
    struct text page, dictionary_page;
    struct parquet_values dictionary, values;
    bool has_dictionary;
    uint8_t *rep, *def;     /* levels of the page; NULL: all 0, all max_def */
    size_t count, capacity; /* entries of the page */
    size_t entry, value;    /* next entry of the page, and its index in `values` */
    bool started;           /* `group` is valid */
};

void parquet_column_init(struct parquet_column *c, const struct parquet *file, size_t leaf);
void parquet_column_release(struct parquet_column *c);

/* Makes the first entry of `row`, which must exist, the next one.  Errors as in
 * parquet_column_next. */
enum status parquet_column_seek(struct parquet_column *c, uint64_t row);
/* Reads the next entry.  DATA: a page is corrupt or fails its checksum, or the row group has more
 * or fewer rows than the footer claims.  UNSUPPORTED: an unknown encoding, or a page of more than
 * 2^26 values. */
enum status parquet_column_next(struct parquet_column *c, struct column_entry *e);
/* Sets *more if the next entry belongs to the same row.  Invalidates the previous entry. */
enum status parquet_column_has_more(struct parquet_column *c, bool *more);
/* Splits a column into ranges of rows for parallel readers.  Returns the end of a range that begins
 * at `row` and holds about *bytes, and sets *bytes to the estimated size.  The end is a page
 * boundary, so that no page is decompressed twice.  Pages of nested lists need not state their
 * rows; a range is then at least an eighth of the row group.  Call it on a column of its own, for
 * consecutive ranges. */
uint64_t parquet_column_range_end(struct parquet_column *c, uint64_t row, uint64_t *bytes);
/* Bytes of memory that the column holds. */
size_t parquet_column_bytes(const struct parquet_column *c);
