/* parquet_values.h -- decodes the values of one page, in any of Parquet's encodings. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/parquet_column.h"

enum { PARQUET_PLAIN = 0 };
enum { PARQUET_MAX_PAGE_VALUES = 1 << 26 }; /* a small corrupt page can claim any number */

/* Decodes `count` values of type `leaf` from `bytes`, which must live as long as `out`.
 * `dictionary` may be NULL.  DATA: the page is corrupt or too short.  UNSUPPORTED: the encoding. */
enum status parquet_values_read(struct parquet_values *out, const struct parquet_leaf *leaf,
                                int64_t encoding, struct reader bytes, size_t count,
                                const struct parquet_values *dictionary);
void parquet_values_release(struct parquet_values *v);
