/* codec.h -- decompresses the pages of Parquet and the buffers of Arrow. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"

/* Name, name in messages, CompressionCodec number in Parquet, and the largest possible expansion:
 * how many bytes one compressed byte can yield (0: unbounded).  Parquet's deprecated LZ4 is
 * Hadoop's framing, or a raw block in files of old writers; LZ4_FRAME occurs in Arrow only. */
#define CODEC_LIST(X)                                                                              \
    X(NONE, none, 0, 1)                                                                            \
    X(SNAPPY, snappy, 1, 64)                                                                       \
    X(GZIP, gzip, 2, 1040)                                                                         \
    X(BROTLI, brotli, 4, 0)                                                                        \
    X(LZ4, lz4, 5, 256)                                                                            \
    X(ZSTD, zstd, 6, 1 << 15)                                                                      \
    X(LZ4_RAW, lz4_raw, 7, 256)                                                                    \
    X(LZ4_FRAME, lz4_frame, CODEC_ARROW_ONLY, 256)

enum { CODEC_ARROW_ONLY = 256 };
enum codec {
#define X(name, word, number, max_expansion) CODEC_##name = number,
    CODEC_LIST(X)
#undef X
};

/* The codec with this number in Parquet.  UNSUPPORTED: any other number.  `where` begins the
 * message, as the name of `in` does below. */
enum status codec_from_parquet(long long number, const char *where, enum codec *out);

/* Decompresses `in` to exactly out_len bytes.  DATA: the input is corrupt, or decompresses to
 * another length. */
enum status codec_decompress(enum codec codec, struct reader in, unsigned char *out,
                             size_t out_len);

/* Checks that `in` can decompress to out_len bytes.  Call this before you allocate the output,
 * because a small corrupt block can claim any size.  DATA: it cannot. */
enum status codec_check_size(enum codec codec, struct reader in, size_t out_len);
