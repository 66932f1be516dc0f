/* table.h -- one column of a .parquet or .arrow file, a document per row.
 *
 * Documents  Text: the row's text.
 *            List of text, as files[].text: all texts of the row, each after two line breaks.
 *            List of integers: token IDs.
 *            List of lists of u8, spike counts [neuron][bin]: IDs bin by bin, with the separator
 *            255 before each bin; or their motifs.
 *            Nulls are skipped; an empty row is no document. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/motifs.h"
#include "formats/arrow_reader.h"
#include "formats/parquet_column.h"

enum table_kind { TABLE_TEXT, TABLE_JOINED, TABLE_IDS, TABLE_COUNTS };
enum { TABLE_BIN_SEPARATOR = 255 }; /* separator: begins a bin of spike counts */

struct table {
    struct parquet file; /* of a .parquet file */
    size_t leaf;
    bool is_arrow;
    struct arrow arrow; /* of an .arrow file */
    enum table_kind kind;
    uint64_t num_rows, size; /* bytes of the file */
    /* Set by the caller.  Spike counts are encoded as motifs, or as single counts if `motifs`,
     * which is borrowed, is NULL. */
    const struct motifs *motifs;
    size_t neurons; /* of every session, as motif_session.width; 0: as many as it has */
};

/* CONFIG: no such column, or its type is not supported.  Otherwise as parquet_open, arrow_open. */
enum status table_open(struct table *r, const char *path, const char *column);
void table_close(struct table *r);
/* Whether all rows read so far were the file's: file_map_check. */
enum status table_check(const struct table *r);
static inline bool table_holds_ids(const struct table *r) { return r->kind >= TABLE_IDS; }

/* Reads rows; reading them in ascending order is cheap. */
struct table_reader;
void table_reader_open(struct table_reader **out, const struct table *r);
void table_reader_close(struct table_reader *r);
/* Replaces `out` with the document of this row: its bytes, or its IDs as int32_t.  DATA: the file
 * is damaged.  RECORD, after which other rows can be read: an ID exceeds int32_t, neurons differ in
 * their number of bins, or the document is larger than 1 GiB. */
enum status table_read(struct table_reader *r, uint64_t row, struct text *out);
/* Splits off a range of rows for one reader, as source_range_end: it begins at `row` and has about
 * *bytes, which becomes about how many it has.  It ends at a page or record batch. */
uint64_t table_range_end(struct table_reader *r, uint64_t row, uint64_t *bytes);
/* Mean bytes of a row's IDs; 0: the column holds text, or the file does not record it. */
uint64_t table_mean_bytes(const struct table *t);
/* Neurons, the number of counts per bin, of the spike counts read last. */
size_t table_reader_neurons(const struct table_reader *r);
/* Memory it holds, which depends on the file's page sizes. */
size_t table_reader_bytes(const struct table_reader *r);
