/* table.h -- the rows of a .parquet or .arrow file, one column of them, as documents.
 *
 * Documents  A column of text: a row's text.  A list of texts, as files[].text: all of the row,
 * each behind two line ends.  A list of whole numbers: token ids.  A list of lists of u8, as spike
 * counts [neuron][bin] are: ids bin by bin, 255 before each bin; or their motifs. What is null is
 * left out; a row of nothing is no document. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/motifs.h"
#include "formats/arrow_reader.h"
#include "formats/parquet_column.h"

enum table_kind { TABLE_TEXT, TABLE_JOINED, TABLE_IDS, TABLE_COUNTS };
enum { TABLE_BIN = 255 }; /* begins a bin */

struct table {
    struct parquet file; /* of a .parquet file; */
    size_t leaf;
    bool is_arrow;
    struct arrow arrow; /* of an .arrow file */
    enum table_kind kind;
    uint64_t num_rows, size; /* bytes of the file */
    const struct motifs
        *motifs;          /* of counts: ids are these; NULL: the counts.  Set by the caller, */
    size_t motif_neurons; /* with this; borrowed */
};

/* CONFIG: there is no such column, or one of other things.  Else as parquet_open. */
enum status table_open(struct table *r, const char *path, const char *column);
void table_close(struct table *r);
static inline bool table_holds_ids(const struct table *r) { return r->kind >= TABLE_IDS; }

/* Replaces `out` by the document of this row: its bytes, or its ids as int32_t; rows in turn are
 * cheap.  DATA: it is damaged, an id is beyond int32_t, a bin lacks a neuron; a document beyond
 * 1 GiB. */
struct table_reader;
void table_reader_open(struct table_reader **out, const struct table *r);
void table_reader_close(struct table_reader *r);
enum status table_read(struct table_reader *r, uint64_t row, struct text *out);
/* The end of a range of rows from `row` on that other readers may go on behind, as cheaply: of
 * about *bytes, which becomes about how many they are. */
uint64_t table_ahead(struct table_reader *r, uint64_t row, uint64_t *bytes);
/* Bytes of a row's ids, on average; 0: it holds text, or does not say. */
uint64_t table_mean_bytes(const struct table *t);
/* Of the spike counts of the row read last: neurons, so many counts a bin. */
size_t table_reader_neurons(const struct table_reader *r);
/* Bytes it holds: pages of others can be of any size. */
size_t table_reader_bytes(const struct table_reader *r);
