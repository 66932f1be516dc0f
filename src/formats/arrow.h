/* arrow.h -- one column of an Arrow file: the IPC stream or file format, as `datasets` writes it.
 *
 * Messages follow each other: the schema, dictionaries, then batches of rows, whose buffers lie in
 * the file as they are in memory, or packed.  So any row is found by its number at once.
 * Memory   The file is mapped; of each batch it is known where the column's buffers lie.  Values of
 *          a dictionary are unpacked once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"
#include "formats/parquet_column.h"

enum { ARROW_DEEP = 16, ARROW_MOST_BYTES = 1 << 30 /* of a buffer that is packed */ };

/* Types as the format numbers them. */
enum arrow_type {
    ARROW_NULL = 1,
    ARROW_INT,
    ARROW_BINARY = 4,
    ARROW_UTF8,
    ARROW_LIST = 12,
    ARROW_STRUCT,
    ARROW_UNION,
    ARROW_FIXED_LIST = 16,
    ARROW_MAP,
    ARROW_LARGE_BINARY = 19,
    ARROW_LARGE_UTF8,
    ARROW_LARGE_LIST,
    ARROW_BINARY_VIEW = 23,
    ARROW_UTF8_VIEW,
    ARROW_LIST_VIEW,
    ARROW_LARGE_LIST_VIEW,
    ARROW_TYPES
};
static inline bool arrow_is_view(int type)
{
    return type == ARROW_BINARY_VIEW || type == ARROW_UTF8_VIEW;
}

/* A field from the top to the column: a list, a struct, or at last the column's values. */
struct arrow_level {
    int type;
    int bits; /* of whole numbers */
    bool is_signed;
    uint64_t list_size;         /* of ARROW_FIXED_LIST */
    size_t node, buffer, views; /* how many of a batch's come before its own */
};

struct arrow_array {
    uint64_t length, nulls;
    struct parquet_bytes validity, offsets, data; /* those that its type has; sizes of lists that
                                                     are views, and views of values, are data */
};

struct arrow_batch {
    uint64_t first_row, num_rows;
    enum codec codec;           /* of all its buffers */
    struct parquet_bytes *more; /* what a column of views points into */
    size_t num_more;
    size_t first_values, end_values; /* what its dictionary is made of: batches of values */
    struct arrow_array arrays[];     /* one a level */
};

struct arrow {
    char *path;
    struct file_map map;
    struct arrow_level levels[ARROW_DEEP];
    int num_levels, num_lists; /* of the column */
    bool is_text, is_integer, is_u8;
    bool is_coded;             /* its last level holds places in a dictionary; */
    int64_t dictionary;        /* the number of that, */
    struct arrow_level values; /* and what that holds */
    struct arrow_batch **batches, **value_batches;
    size_t num_batches, capacity, num_value_batches, values_capacity;
    size_t first_values; /* of the dictionary in force */
    uint64_t num_rows;
    struct text columns; /* all there are */
    struct text *rooms;  /* what values are unpacked into */
    size_t num_rooms;
    uint64_t unpacked; /* bytes of them */
};

/* The file's column of that name (as parquet_find takes it).  CONFIG: there is no such column.
 * DATA: damaged or cut off.  UNSUPPORTED: big-endian, or with unions. */
enum status arrow_open(struct arrow *a, const char *path, const char *column);
void arrow_close(struct arrow *a);
/* The same of bytes that stay the caller's; a->path must be set, and `a` is to be closed. */
enum status arrow_parse(struct arrow *a, const unsigned char *bytes, uint64_t size,
                        const char *column);

/* The batch of a row, which there must be. */
const struct arrow_batch *arrow_batch_of(const struct arrow *a, uint64_t row);

/* A buffer as the batch packs it: its bytes, or where they were unpacked to, in `room`.  DATA,
 * UNSUPPORTED. */
enum status arrow_unpack(const struct arrow *a, enum codec codec, struct parquet_bytes *buffer,
                         struct text *room);

/* The end of a range of rows from `row` on, within its batch, of about *bytes, which becomes about
 * how many they are.  Of a batch that is packed it is an eighth at least. */
uint64_t arrow_ahead(const struct arrow *a, uint64_t row, uint64_t *bytes);
