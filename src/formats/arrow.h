/* arrow.h -- one column of an Arrow file: the IPC stream or file format, as `datasets` writes it.
 *
 * Messages follow each other: the schema, then batches of rows, whose buffers lie in the file as
 * they are in memory.  So any row is found by its number at once.
 * Memory   The file is mapped; of each batch it is known where the column's buffers lie. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"
#include "formats/parquet_column.h"

enum { ARROW_DEEP = 16 };

/* A field from the top to the column: a list, a struct, or at last the column's values. */
struct arrow_level {
    int type; /* as the format numbers them */
    int bits; /* of whole numbers */
    bool is_signed;
    size_t node, buffer; /* its first, of a batch's */
};

struct arrow_array {
    uint64_t length, nulls;
    struct parquet_bytes validity, offsets, data; /* those that its type has */
};

struct arrow_batch {
    uint64_t first_row, num_rows;
    struct arrow_array arrays[]; /* one a level */
};

struct arrow {
    char *path;
    struct file_map map;
    struct arrow_level levels[ARROW_DEEP];
    int num_levels, num_lists; /* of the column */
    bool is_text, is_integer, is_u8;
    struct arrow_batch **batches;
    size_t num_batches, capacity;
    uint64_t num_rows;
};

/* The file's column of that name (as parquet_find takes it).  CONFIG: there is no such column.
 * DATA: damaged or cut off.  UNSUPPORTED: compressed, big-endian, of dictionaries or views. */
enum status arrow_open(struct arrow *a, const char *path, const char *column);
void arrow_close(struct arrow *a);
/* The same of bytes that stay the caller's; a->path must be set, and `a` is to be closed. */
enum status arrow_parse(struct arrow *a, const unsigned char *bytes, uint64_t size,
                        const char *column);

/* Calls `visit` for each entry of the row, as parquet_column_next gives them (def is 0).  DATA: its
 * buffers are shorter than their offsets say; UNSUPPORTED: it is neither text nor whole numbers; or
 * what `visit` returns. */
typedef enum status arrow_visit(void *context, const struct parquet_entry *e);
enum status arrow_row(const struct arrow *a, uint64_t row, arrow_visit *visit, void *context);

/* The end of a range of rows from `row` on, within its batch, of about *bytes, which becomes about
 * how many they are. */
uint64_t arrow_ahead(const struct arrow *a, uint64_t row, uint64_t *bytes);
