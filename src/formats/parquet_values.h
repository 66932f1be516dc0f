/* parquet_values.h -- decodes the values of one page, in any of Parquet's encodings. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/column_entry.h"
#include "formats/parquet.h"

/* Decoded values: `bytes` for BYTES, FIXED and I96, else `numbers`; floats are stored as bits. */
struct parquet_values {
    struct byte_span *bytes;
    int64_t *numbers;
    size_t count, capacity;
    struct text storage; /* what `bytes` point to if the encoding does not store values whole */
};

enum { PARQUET_PLAIN = 0 };
enum { PARQUET_MAX_PAGE_VALUES = 1 << 26 }; /* a small corrupt page can claim any number */

struct parquet_encoded {
    const struct parquet_leaf *leaf;
    int64_t encoding;
    struct reader bytes;
    size_t count;
    const struct parquet_values *dictionary; /* or NULL */
};

/* Decodes the values of a page.  Its bytes must live as long as `out`.  DATA: the page is corrupt
 * or too short.  UNSUPPORTED: the encoding. */
enum status parquet_values_read(struct parquet_values *out, const struct parquet_encoded *in);
void parquet_values_release(struct parquet_values *v);
