/* run_filter.h -- which runs to list: comparisons of their columns.
 *
 * filter     = all { ("or" | "||") all }
 * all        = comparison { ("and" | "&&" | ",") comparison }
 * comparison = COLUMN RELATION VALUE, with =, ==, !=, <, <=, >, >= or ~ as the relation
 * VALUE is a word, a number, or a text in quotes; "~" is "contains".  Spaces are optional around
 * symbols.  A run without the column satisfies only !=.  Ages may be written as 90s, 15m, 2h or
 * 3d. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "runs/run_cell.h"

#include <stdbool.h>
#include <stddef.h>

struct run_comparison; /* private */

struct run_filter {
    struct run_comparison *all;
    size_t count;
};

/* USAGE: the message has the text, the position of the error and what was expected there. */
enum status run_filter_parse(struct run_filter *f, const char *text);
void run_filter_release(struct run_filter *f);
/* USAGE: a column that no run has. */
enum status run_filter_check(const struct run_filter *f, const struct run_list *l);
bool run_filter_accepts(const struct run_filter *f, const struct run_folder *r, double now_s);
