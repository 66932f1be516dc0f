/* parquet_rows.h -- the rows of a Parquet file, each as the text of a JSON object; task_rows.h has
 * the mapping. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>

struct parquet_rows;

/* Errors of parquet_open. */
enum status parquet_rows_open(struct parquet_rows **out, const char *path);
void parquet_rows_close(struct parquet_rows *r);
/* Replaces `json` with the next row; *end: no more.  DATA: the file is damaged, or a text contains
 * a NUL. */
enum status parquet_rows_next(struct parquet_rows *r, struct text *json, bool *end);
