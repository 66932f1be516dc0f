/* parquet_column.h -- one column of a Parquet file, entry by entry, from any row on.
 *
 * Memory   One page unpacked, and the dictionary of its row group.
 * Resume   A row is found by its row group, and in that by the heads of the pages before; only
 *          pages of nested lists must be unpacked to be counted. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/parquet.h"

struct parquet_bytes {
    const unsigned char *data;
    size_t len;
};

/* Values: `bytes` of PARQUET_BYTES, FIXED and I96; else `numbers`, of floats their bits. */
struct parquet_values {
    struct parquet_bytes *bytes;
    int64_t *numbers;
    size_t count, capacity;
    struct text room; /* what the values lie in where they are not in the file as they are */
};

struct parquet_column {
    const struct parquet *file; /* borrowed */
    const struct parquet_leaf *leaf;
    size_t group;        /* of the page, or where to go on */
    uint64_t row;        /* of the next entry that begins one */
    uint64_t seen;       /* entries of the group in the pages up to this one */
    struct reader pages; /* the next page's head */
    struct text page, unpacked_dictionary;
    struct parquet_values dictionary, values;
    bool has_dictionary;
    uint8_t *rep, *def;     /* of the page's entries; NULL: all 0, all max_def */
    size_t count, capacity; /* entries of the page */
    size_t entry, value;    /* the next of them */
    bool started;           /* a row group is under way */
};

struct parquet_entry {
    int rep, def;
    bool has_value;             /* def is max_def */
    struct parquet_bytes bytes; /* till the next call */
    int64_t number;
};

void parquet_column_init(struct parquet_column *c, const struct parquet *file, size_t leaf);
void parquet_column_release(struct parquet_column *c);

/* The next entry is the first of this row, which there must be.  DATA: as below. */
enum status parquet_column_seek(struct parquet_column *c, uint64_t row);
/* The next entry.  DATA: a damaged page or one of a wrong checksum, more or fewer rows than the
 * footer says.  UNSUPPORTED: an encoding not read, more than 2^26 values in a page. */
enum status parquet_column_next(struct parquet_column *c, struct parquet_entry *e);
/* Does the row go on?  The entry before is no longer to be used. */
enum status parquet_column_goes_on(struct parquet_column *c, bool *more);
/* The end of a range of about *bytes that begins at `row`: where a page begins, so that another
 * column may go on there and no page is unpacked twice.  Where pages do not say their rows, which
 * those of nested lists may not, it is an eighth of the row group at least.  *bytes becomes about
 * how many they are.  For a column that reads nothing but these, one behind the other. */
uint64_t parquet_column_ahead(struct parquet_column *c, uint64_t row, uint64_t *bytes);
/* Bytes it holds. */
size_t parquet_column_bytes(const struct parquet_column *c);
