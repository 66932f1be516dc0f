/* parquet.h -- reads the footer of a Parquet file: the schema, and the offsets of column chunks.
 *
 * A leaf of the schema is a column of values.  Two levels per value encode its nesting (Dremel).
 * The repetition level, rep, is the depth of the list that the value continues; 0 starts a row.
 * The definition level, def, is the number of optional or repeated ancestors that are present;
 * max_def means that the value is not null.
 * Memory   The file is mapped; names point into the mapping.
 * Source   parquet-format, parquet.thrift and LogicalTypes.md. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file_map.h"
#include "formats/codec.h"

enum parquet_type {
    PARQUET_BOOL,
    PARQUET_I32,
    PARQUET_I64,
    PARQUET_I96,
    PARQUET_F32,
    PARQUET_F64,
    PARQUET_BYTES, /* BYTE_ARRAY */
    PARQUET_FIXED, /* FIXED_LEN_BYTE_ARRAY */
    PARQUET_TYPES
};

enum parquet_repetition { PARQUET_REQUIRED, PARQUET_OPTIONAL, PARQUET_REPEATED };

/* A schema node.  Nodes are in the depth-first order of the footer. */
struct parquet_node {
    const char *name; /* not NUL-terminated */
    size_t name_len;
    enum parquet_repetition repetition;
    size_t end, parent; /* `end`: the next node that is not a descendant */
    size_t leaf;        /* index of the leaf; SIZE_MAX for a group */
    bool is_list;       /* annotated as LIST or MAP: users may omit its child's name */
};

struct parquet_leaf {
    size_t node;
    enum parquet_type type;
    uint32_t type_bytes; /* of PARQUET_FIXED */
    bool is_u8;          /* an I32 with logical type UINT_8 */
    uint8_t max_def, max_rep;
    uint8_t list_def; /* lowest def of an entry that is an item of the innermost list */
};

/* A column chunk. */
struct parquet_chunk {
    enum codec codec;
    uint64_t offset;             /* of the first page */
    uint64_t num_values;         /* entries, nulls included */
    uint64_t uncompressed_bytes; /* unverified: use it for estimates only */
};

/* A row group. */
struct parquet_group {
    uint64_t first_row, num_rows;
    struct parquet_chunk *chunks; /* one per leaf */
};

struct parquet {
    char *path;
    struct file_map map;
    uint64_t data_end; /* offset of the footer */
    struct parquet_node *nodes;
    struct parquet_leaf *leaves;
    struct parquet_group *groups;
    size_t num_nodes, num_leaves, num_groups;
    uint64_t num_rows;
};

/* MISSING, IO.  DATA: the footer is corrupt.  UNSUPPORTED: an encrypted file or column, an unknown
 * codec, a column chunk in another file, or nesting beyond 255 levels. */
enum status parquet_open(struct parquet *p, const char *path);
void parquet_close(struct parquet *p);
/* parquet_open for a file image that the caller keeps.  The caller sets p->path, and calls
 * parquet_close even after a failure. */
enum status parquet_parse(struct parquet *p, const unsigned char *bytes, uint64_t size);

/* Finds a leaf by the path that a user wrote: names from the root, separated by dots.  A [] after a
 * list's name, and the inner nodes of a LIST or MAP, may be omitted.  A name may have dots itself.
 * CONFIG: no such leaf, or more than one; the message lists the columns. */
enum status parquet_find(const struct parquet *p, const char *column, size_t *leaf);
/* The comma-separated names of the leaves, truncated to fit a message. */
void parquet_list_columns(const struct parquet *p, struct text *out);
