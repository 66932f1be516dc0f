/* arrow_types.h -- the data structures that the files of the Arrow reader share: an open file, its
 * schema levels and its batches. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file_map.h"
#include "formats/codec.h"
#include "formats/column_entry.h"

enum { ARROW_MAX_DEPTH = 16, ARROW_MAX_BUFFER_BYTES = 1 << 30 /* decompressed */ };

/* The tags of union Type in Schema.fbs. */
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
    ARROW_RUN_END_ENCODED,
    ARROW_BINARY_VIEW,
    ARROW_UTF8_VIEW,
    ARROW_LIST_VIEW,
    ARROW_LARGE_LIST_VIEW,
    ARROW_TYPES
};

static inline bool arrow_is_view(int type)
{
    return type == ARROW_BINARY_VIEW || type == ARROW_UTF8_VIEW;
}

/* One field on the path from the top of the schema to the column: a list, a struct, or the leaf. */
struct arrow_level {
    int type;
    int bits; /* of integers */
    bool is_signed;
    uint64_t list_size;   /* of ARROW_FIXED_LIST */
    size_t node, buffer;  /* index of its first FieldNode and Buffer in every record batch */
    unsigned num_buffers; /* of its arrays, without the variadic ones of views */
    size_t unions;        /* fields before it that have a validity bitmap in old metadata only */
    size_t variadic;      /* index into variadicBufferCounts */
};

/* The array of one level in one batch: a FieldNode and the buffers that its type has.  The sizes
 * of a list view, and the 16-byte views of a binary or UTF-8 view, are in `data`. */
struct arrow_array {
    uint64_t length, nulls;
    struct byte_span validity, offsets, data;
};

/* A record batch, or a dictionary batch, of the column. */
struct arrow_batch {
    uint64_t first_row, num_rows;
    enum codec codec;           /* of all its buffers */
    struct byte_span *variadic; /* the data buffers that views point into */
    size_t num_variadic;
    size_t dictionary_begin, dictionary_end; /* its dictionary: these of `dictionary_batches` */
    struct arrow_array arrays[];             /* one per level */
};

struct arrow {
    char *path;
    struct file_map map;
    struct arrow_level levels[ARROW_MAX_DEPTH];
    int num_levels, num_lists; /* of the column */
    bool is_text, is_integer, is_u8;
    bool is_dictionary_encoded; /* the last level holds indices into a dictionary: */
    int64_t dictionary_id;
    struct arrow_level dictionary_values;
    struct arrow_batch **batches, **dictionary_batches;
    size_t num_batches, capacity, num_dictionary_batches, dictionary_capacity;
    size_t dictionary_begin; /* first batch of the current dictionary */
    uint64_t num_rows;
    struct text columns;  /* the names of all columns, for messages */
    struct text *buffers; /* decompressed buffers of dictionary batches */
    size_t num_buffers;
    uint64_t buffer_bytes; /* their total size */
};
