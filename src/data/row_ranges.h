/* row_ranges.h -- rows of a run that are not trained on: a rollback skipped them, or they are
 * to be skipped.
 *
 * Rows are numbered over the whole run.  In JSON a range is [first, last], both included. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"

#include <stddef.h>
#include <stdint.h>

struct row_interval {
    uint64_t begin, end; /* rows [begin, end) */
};
struct row_ranges {
    struct row_interval *items; /* ascending, neither overlapping nor adjacent; owned */
    size_t count;
};

void row_ranges_release(struct row_ranges *r);
/* Adds rows, some of which may be in the list already. */
void row_ranges_add(struct row_ranges *r, struct row_interval rows);
/* Adds those rows of another list that are in the interval. */
void row_ranges_add_part(struct row_ranges *r, const struct row_ranges *from,
                         struct row_interval part);
/* Their number. */
uint64_t row_ranges_rows(const struct row_ranges *r);
/* The n-th row, from 0, of those from `first` on that are not in the list. */
uint64_t row_ranges_outside(const struct row_ranges *r, uint64_t first, uint64_t n);

/* Writes a member, unless the list is empty. */
void row_ranges_write(const struct row_ranges *r, const char *key, struct json_writer *w);
/* Replaces the list with that member; NULL: with an empty list.  DATA: it is damaged. */
enum status row_ranges_read(struct row_ranges *r, const struct json *list);
