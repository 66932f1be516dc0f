/* parquet.h -- what a Parquet file's footer says: its columns, and where their chunks lie.
 *
 * A leaf is a column of values.  What nests it is told by two levels a value (Dremel): rep, at
 * which list it goes on (0: a new row), and def, how many of the optional and repeated nodes above
 * it are there (max_def: a value is).
 * Memory   The file is mapped; names point into it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"
#include "formats/codec.h"

enum parquet_type {
    PARQUET_BOOL,
    PARQUET_I32,
    PARQUET_I64,
    PARQUET_I96,
    PARQUET_F32,
    PARQUET_F64,
    PARQUET_BYTES,
    PARQUET_FIXED,
    PARQUET_TYPES
};

enum parquet_repetition { PARQUET_REQUIRED, PARQUET_OPTIONAL, PARQUET_REPEATED };

/* The schema in the order of the file: a node, then all below it. */
struct parquet_node {
    const char *name; /* not ended by NUL */
    size_t name_len;
    enum parquet_repetition repetition;
    size_t end, parent; /* the first node that is not below it */
    size_t leaf;        /* a leaf's number; else SIZE_MAX */
    bool is_list;       /* annotated as LIST, MAP or so: its one child is a matter of the format */
};

struct parquet_leaf {
    size_t node;
    enum parquet_type type;
    uint32_t type_bytes; /* of PARQUET_FIXED */
    bool is_u8;          /* PARQUET_I32 of unsigned bytes */
    uint8_t max_def, max_rep;
};

struct parquet_chunk {
    enum codec codec;
    uint64_t at;         /* the first page */
    uint64_t num_values; /* entries, as levels count them */
    uint64_t unpacked;   /* bytes, as the footer says; for estimates */
};

struct parquet_group {
    uint64_t first_row, num_rows;
    struct parquet_chunk *chunks; /* one a leaf */
};

struct parquet {
    char *path;
    struct file_map map;
    uint64_t data_end; /* where the footer begins */
    struct parquet_node *nodes;
    struct parquet_leaf *leaves;
    struct parquet_group *groups;
    size_t num_nodes, num_leaves, num_groups;
    uint64_t num_rows;
};

/* MISSING, IO; DATA: what is wrong with the footer.  UNSUPPORTED: encrypted, a codec not read,
 * lists nested beyond 255 levels. */
enum status parquet_open(struct parquet *p, const char *path);
void parquet_close(struct parquet *p);
/* The footer of a whole file's bytes, which stay the caller's; for parquet_open and the fuzzer.
 * p->path must be set; after a failure, too, `p` is to be closed. */
enum status parquet_parse(struct parquet *p, const unsigned char *bytes, uint64_t size);

/* The leaf a user means: names from the top, split by dots; [] after a list's name may stand or be
 * left out, and so may the nodes that only make a list.  CONFIG: there is none, or several; the
 * message lists what there is. */
enum status parquet_find(const struct parquet *p, const char *column, size_t *leaf);
/* The leaves' names, as far as a message has room for them. */
void parquet_columns(const struct parquet *p, struct text *out);
