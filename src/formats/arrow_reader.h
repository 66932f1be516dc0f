/* arrow_reader.h -- the rows of an Arrow file's column, entry by entry.
 *
 * Memory   Where batches are packed: one of them, its column's buffers. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/arrow.h"

struct arrow_reader {
    const struct arrow *arrow;       /* borrowed */
    const struct arrow_batch *batch; /* of the row, as it lies in the file */
    struct arrow_batch *unpacked;    /* its copy; NULL: it is not packed */
    struct text *rooms;              /* one a buffer */
    size_t num_rooms;
};

void arrow_reader_init(struct arrow_reader *r, const struct arrow *a);
void arrow_reader_release(struct arrow_reader *r);

/* Calls `visit` for each entry of the row, which there must be, as parquet_column_next gives them
 * (def is 0).  DATA: its buffers are shorter than their offsets say, or are damaged; UNSUPPORTED:
 * it is neither text nor whole numbers; or what `visit` returns. */
typedef enum status arrow_visit(void *context, const struct parquet_entry *e);
enum status arrow_reader_row(struct arrow_reader *r, uint64_t row, arrow_visit *visit,
                             void *context);
/* Bytes it holds. */
size_t arrow_reader_bytes(const struct arrow_reader *r);
