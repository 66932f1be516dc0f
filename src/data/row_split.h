/* row_split.h -- which data-parallel reader trains on each row of the run.
 *
 * Readers take blocks of consecutive rows in turn, counted from the first row of the run: position
 * p belongs to reader p / block mod readers.  So the rows of a step do not depend on the number of
 * readers, and any step gives two readers nearly equal numbers of rows.  A position counts the rows
 * that are delivered, since the first one of the run; rows that are skipped have none. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

struct row_split {
    uint64_t readers, block;
};

uint64_t row_split_reader(const struct row_split *s, uint64_t position);
/* How many positions below `end` belong to the reader. */
uint64_t row_split_count(const struct row_split *s, uint64_t reader, uint64_t end);
/* The k-th position of the reader, from 0. */
uint64_t row_split_position(const struct row_split *s, uint64_t reader, uint64_t k);
/* The most positions that one reader has among any `rows` consecutive ones. */
uint64_t row_split_most(const struct row_split *s, uint64_t rows);
