/* parquet_rows.h -- the rows of a Parquet file as text of JSON objects; see task_rows.h. */
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
