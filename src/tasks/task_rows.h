/* task_rows.h -- the rows of an evaluation data set, each as a JSON object.
 *
 * Files    .jsonl, .jsonl.gz, .jsonl.zst: an object per line; blank lines are skipped.
 *          .parquet: a row's columns of text, integers and booleans, lists of them, and structs of
 *          these; other columns are omitted.  A null becomes null, or is omitted from a list. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"

struct task_rows;

/* MISSING, IO, DATA.  CONFIG: the file name has another suffix. */
enum status task_rows_open(struct task_rows **out, const char *path);
void task_rows_close(struct task_rows *r);
/* The next row, which the caller frees; NULL: no more.  DATA: not a JSON object, or the file is
 * damaged. */
enum status task_rows_next(struct task_rows *r, struct json **row);
/* Position of the last row, for messages: "FILE, line 3" or "FILE, row 2".  Valid until the next
 * call. */
const char *task_rows_where(const struct task_rows *r);
