/* loader_rows.h -- the rows that a loader reads: which ones, in a prefetch thread or when they are
 * needed, and how a row of a batch is built from tokens. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/loader_state.h"

/* Allocates the cursors of all streams, at their starts. */
void loader_rows_alloc_cursors(struct loader *l);

void loader_rows_init(struct loader_row *r, const struct loader *l);
void loader_rows_free(struct loader_row *r);
/* Builds a batch of one row from the row's tokens. */
void loader_rows_build(const struct loader *l, struct loader_row *r);

/* The number of the row at a position. */
uint64_t loader_rows_number(const struct loader *l, uint64_t position);
/* Where the i-th row of a batch goes (loader_options.deal), and the inverse. */
int loader_rows_place(const struct loader *l, int i);
int loader_rows_at_place(const struct loader *l, int place);

/* Whether rows belong to streams, each of which one reader reads.  Not in a single pass: it has one
 * stream, which every reader reads whole. */
bool loader_rows_have_streams(const struct loader *l);
/* Whether a reader trains on rows that others read: the streams cannot be partitioned so that it
 * trains on all of their rows. */
bool loader_rows_are_exchanged(const struct loader *l);
/* The reader that reads the row at a position. */
uint64_t loader_rows_reader(const struct loader *l, uint64_t position);

/* Starts the prefetch thread if there is to be one. */
enum status loader_rows_start(struct loader *l);
void loader_rows_stop(struct loader *l);
/* The next row that this reader reads; its cursor becomes the loader's.  The row is empty at the
 * end of a single pass, and otherwise the caller's until loader_rows_release. */
enum status loader_rows_take(struct loader *l, struct loader_row **row);
void loader_rows_release(struct loader *l);
