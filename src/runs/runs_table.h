/* runs_table.h -- runs as the rows of a table: which columns, in which order, as text, CSV or
 * JSON. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "runs/run_filter.h"
#include "runs/run_list.h"

#include <stdbool.h>
#include <stddef.h>

struct runs_table {
    const struct run_list *list; /* borrowed */
    double now_s;
    const struct run_folder **rows; /* of the list */
    size_t num_rows;
    char **columns;
    size_t num_columns;
};

/* All runs of the list, the one that wrote last first. */
void runs_table_init(struct runs_table *t, const struct run_list *l, double now_s);
void runs_table_release(struct runs_table *t);

void runs_table_filter(struct runs_table *t, const struct run_filter *f);
/* By a column, ascending; numbers come before text, and runs without the column last, whatever the
 * direction.  USAGE: no run has it. */
enum status runs_table_sort(struct runs_table *t, const char *column, bool reverse);

/* Those between commas.  USAGE: no run has one of them. */
enum status runs_table_set_columns(struct runs_table *t, const char *columns);
/* run, the settings that differ between the rows, state, step, loss, best_validation, tokens and
 * age; with `steps`, also steps. */
void runs_table_choose_columns(struct runs_table *t, bool steps);

/* At most `width` columns wide, 0: any.  Settings that do not fit are left out and added to
 * *dropped, with commas between them. */
void runs_table_text(const struct runs_table *t, size_t width, struct text *out,
                     struct text *dropped);
void runs_table_csv(const struct runs_table *t, struct text *out);  /* RFC 4180 */
void runs_table_json(const struct runs_table *t, struct text *out); /* an array of objects */
