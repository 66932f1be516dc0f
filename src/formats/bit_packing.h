/* bit_packing.h -- whole numbers in few bits each, as Parquet packs them.
 *
 * Every reader is over bytes that are there; a run beyond them is an error, not a crash. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"

/* RLE / bit-packed hybrid: runs of one value, and groups of 8 values bit by bit. */
struct hybrid {
    struct reader bytes;
    int width;             /* bits, 0 to 32 */
    uint64_t same, packed; /* left of the run under way; one of them is 0 */
    uint32_t value;        /* of `same` */
    uint64_t bit;          /* where the next packed value begins */
};

/* DATA: the width is beyond 32 bits. */
enum status hybrid_init(struct hybrid *h, struct reader bytes, int width);
/* The next `count` values.  DATA: the runs end before. */
enum status hybrid_take(struct hybrid *h, uint32_t *out, size_t count);
/* DELTA_BINARY_PACKED: exactly `count` values, wrapping; *r stands behind them.  With `is_32` they
 * wrap at 32 bits.  DATA: it holds another number of values, or ends early. */
enum status delta_read(struct reader *r, int64_t *out, size_t count, bool is_32);
