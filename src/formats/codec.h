/* codec.h -- blocks of bytes packed by the codecs of Parquet and Arrow. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>

/* name as users write it, the codec's number in Parquet, its unpacker, and how many bytes a
 * byte can give at most (0: any number).  LZ4 is what Hadoop packs (or an LZ4_RAW, of old writers);
 * LZ4_FRAME is Arrow's alone. */
#define CODEC_LIST(X)                                                                              \
    X(NONE, none, 0, 1)                                                                            \
    X(SNAPPY, snappy, 1, 64)                                                                       \
    X(GZIP, gzip, 2, 1040)                                                                         \
    X(BROTLI, brotli, 4, 0)                                                                        \
    X(LZ4, lz4, 5, 256)                                                                            \
    X(ZSTD, zstd, 6, 1 << 15)                                                                      \
    X(LZ4_RAW, lz4_raw, 7, 256)                                                                    \
    X(LZ4_FRAME, lz4_frame, CODEC_OF_ARROW, 256)

enum { CODEC_OF_ARROW = 256 };
enum codec {
#define X(name, word, number, most) CODEC_##name = number,
    CODEC_LIST(X)
#undef X
};

/* UNSUPPORTED: no codec of Parquet of that number is read (`where` is told). */
enum status codec_find(long long number, const char *where, enum codec *out);

/* Exactly out_len bytes out of in_len.  DATA: they are no such block, or of another length. */
enum status codec_unpack(enum codec codec, const unsigned char *in, size_t in_len,
                         unsigned char *out, size_t out_len, const char *where);

/* To be asked before memory is taken for them: can these bytes unpack to out_len?  A few bytes may
 * say that they are any number.  DATA: they cannot. */
enum status codec_check(enum codec codec, const unsigned char *in, size_t in_len, size_t out_len,
                        const char *where);
