/* loader_exchange.h -- sends rows to the readers that train on them.
 *
 * Every stream has one reader.  If the streams cannot be partitioned so that each reader trains on
 * the rows that it reads, readers exchange them, as tokens, before each step: all-gathers of
 * records, in rounds that bound the memory. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/loader_state.h"

/* Fills the batch with this reader's rows of the positions [begin, end), which all readers read in
 * parts.  Collective over the readers. */
enum status loader_exchange_rows(struct loader *l, struct batch *b, uint64_t begin, uint64_t end);
/* Size of its buffer; 0: readers exchange nothing. */
int64_t loader_exchange_bytes(const struct loader *l);
