/* arrow_reader.h -- reads the rows of an Arrow file's column, entry by entry.
 *
 * Memory   If batches are compressed: the decompressed buffers of one batch's column. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/arrow.h"

struct arrow_reader {
    const struct arrow *arrow;        /* borrowed */
    const struct arrow_batch *batch;  /* the batch that `decompressed` is a copy of */
    struct arrow_batch *decompressed; /* NULL: the last batch read was not compressed */
    struct text *buffers;             /* what the buffers of `decompressed` point into */
    size_t num_buffers;
};

void arrow_reader_init(struct arrow_reader *r, const struct arrow *a);
void arrow_reader_release(struct arrow_reader *r);

/* Calls `visit` for each entry of `row`, which must exist.  Entries have the values and repetition
 * levels that parquet_column_next gives; def is 0.  DATA: an offset points outside of its buffer, a
 * buffer is corrupt, or list views repeat far more items than the batch has.  UNSUPPORTED: the
 * column holds neither text nor integers.  Else what `visit` returns. */
typedef enum status arrow_visit(void *context, const struct column_entry *e);
enum status arrow_reader_visit_row(struct arrow_reader *r, uint64_t row, arrow_visit *visit,
                                   void *context);
/* Bytes of memory that the reader holds. */
size_t arrow_reader_bytes(const struct arrow_reader *r);
