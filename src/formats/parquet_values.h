/* parquet_values.h -- the values of one page, in each of Parquet's encodings. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/parquet_column.h"

enum { PARQUET_PLAIN = 0 };
enum { PARQUET_MOST_VALUES = 1 << 26 }; /* of a page: a small one may say it has any number */

/* `count` values of `leaf` out of `bytes`, which `out` may go on pointing into.  `dictionary`: NULL
 * where there is none.  DATA: they are not all there.  UNSUPPORTED: the encoding. */
enum status parquet_values_read(struct parquet_values *out, const struct parquet_leaf *leaf,
                                int64_t encoding, struct reader bytes, size_t count,
                                const struct parquet_values *dictionary);
void parquet_values_release(struct parquet_values *v);
