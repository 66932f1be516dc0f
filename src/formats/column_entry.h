/* column_entry.h -- one entry of a column, as the readers of Parquet and Arrow yield it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct byte_span {
    const unsigned char *data;
    size_t len;
};

/* A value with its repetition and definition levels (see parquet.h). */
struct column_entry {
    int rep, def;
    bool has_value;         /* def == max_def */
    bool is_null_item;      /* an item of the innermost list that is null */
    struct byte_span bytes; /* valid until the next call */
    int64_t number;
};
