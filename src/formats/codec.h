/* codec.h -- blocks of bytes packed by the codecs of Parquet and Arrow. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>

/* name as users write it, the codec's number in Parquet, its unpacker.  LZ4 is what Hadoop packs
 * (or an LZ4_RAW, of old writers); LZ4_FRAME is Arrow's alone. */
#define CODEC_LIST(X)                                                                              \
    X(NONE, none, 0)                                                                               \
    X(SNAPPY, snappy, 1)                                                                           \
    X(GZIP, gzip, 2)                                                                               \
    X(BROTLI, brotli, 4)                                                                           \
    X(LZ4, lz4, 5)                                                                                 \
    X(ZSTD, zstd, 6)                                                                               \
    X(LZ4_RAW, lz4_raw, 7)                                                                         \
    X(LZ4_FRAME, lz4_frame, CODEC_OF_ARROW)

enum { CODEC_OF_ARROW = 256 };
enum codec {
#define X(name, word, number) CODEC_##name = number,
    CODEC_LIST(X)
#undef X
};

/* UNSUPPORTED: no codec of Parquet of that number is read (`where` is told). */
enum status codec_find(long long number, const char *where, enum codec *out);

/* Exactly out_len bytes out of in_len.  DATA: they are no such block, or of another length. */
enum status codec_unpack(enum codec codec, const unsigned char *in, size_t in_len,
                         unsigned char *out, size_t out_len, const char *where);
