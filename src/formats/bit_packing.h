/* bit_packing.h -- decoders for Parquet's bit-packed integers: the RLE/bit-packing hybrid, and
 * DELTA_BINARY_PACKED.
 *
 * Errors   DATA: the encoded data ends early or contradicts itself.
 * Source   parquet-format, Encodings.md. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"

/* Decoder of the hybrid: RLE runs of one value, and bit-packed runs of groups of 8 values. */
struct bit_packing {
    struct reader bytes;
    int width;                 /* bits of a value, 0 to 32 */
    uint64_t repeated, packed; /* values left in the current run; one of the two is 0 */
    uint32_t value;            /* of the RLE run */
    uint64_t bit;              /* offset of the next value in the bit-packed run */
};

/* DATA: the width is not 0 to 32. */
enum status bit_packing_init(struct bit_packing *b, struct reader bytes, int width);
/* Decodes the next `count` values. */
enum status bit_packing_read(struct bit_packing *b, uint32_t *out, size_t count);
/* Decodes DELTA_BINARY_PACKED data that holds exactly `count` values, and advances *r past it.
 * Sums wrap around, at 32 bits if `is_32`. */
enum status bit_packing_read_deltas(struct reader *r, int64_t *out, size_t count, bool is_32);
