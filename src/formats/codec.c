// SPDX-License-Identifier: Apache-2.0
#include "formats/codec.h"

#include "base/file.h"

#include <brotli/decode.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { WILD = 16 }; /* bytes copied at once where both sides have them */

/* `len` bytes that begin `offset` bytes before `to`, over themselves where they overlap; there is
 * room for them. */
static inline void repeat(unsigned char *to, size_t offset, size_t len, const unsigned char *end)
{
    const unsigned char *from = to - offset;
    if (offset >= WILD && (size_t)(end - to) >= len + WILD) {
        for (size_t i = 0; i < len; i += WILD) memcpy(to + i, from + i, WILD);
    } else if (offset >= 8 && (size_t)(end - to) >= len + 8) {
        for (size_t i = 0; i < len; i += 8) memcpy(to + i, from + i, 8);
    } else {
        for (size_t i = 0; i < len; i++) to[i] = from[i];
    }
}

static inline void copy(unsigned char *to, const unsigned char *end, const unsigned char *from,
                        const unsigned char *from_end, size_t len)
{
    if (len <= WILD && end - to >= WILD && from_end - from >= WILD)
        memcpy(to, from, WILD);
    else
        memcpy(to, from, len);
}

/* google/snappy's format_description.txt: the length, then literals and copies. */
static bool unpack_snappy(const unsigned char *in, size_t in_len, unsigned char *out,
                          size_t out_len)
{
    const unsigned char *at = in, *end = in + in_len, *to_end = out + out_len;
    unsigned char *to = out;
    uint64_t promised = 0;
    for (int shift = 0;; shift += 7) {
        if (at == end || shift > 28) return false;
        promised |= (uint64_t)(*at & 0x7F) << shift;
        if (!(*at++ & 0x80)) break;
    }
    if (promised != out_len) return false;
    while (at < end) {
        unsigned tag = *at++;
        size_t len = tag >> 2, offset = 0, more = 0;
        if (!(tag & 3)) {
            if (len >= 60) {
                more = len - 59;
                if ((size_t)(end - at) < more) return false;
                len = 0;
                for (size_t i = 0; i < more; i++) len |= (size_t)at[i] << (8 * i);
                at += more;
            }
            len++;
            if ((size_t)(end - at) < len || (size_t)(to_end - to) < len) return false;
            copy(to, to_end, at, end, len);
            at += len, to += len;
            continue;
        }
        more = (tag & 3) == 3 ? 4 : tag & 3;
        if ((size_t)(end - at) < more) return false;
        for (size_t i = 0; i < more; i++) offset |= (size_t)at[i] << (8 * i);
        at += more;
        if ((tag & 3) == 1) {
            offset |= (size_t)(tag >> 5) << 8;
            len = 4 + (tag >> 2 & 7);
        } else {
            len++;
        }
        if (!offset || offset > (size_t)(to - out) || (size_t)(to_end - to) < len) return false;
        repeat(to, offset, len, to_end);
        to += len;
    }
    return to == to_end;
}

/* A length of LZ4 that goes on in further bytes while they are 255. */
static bool lz4_length(const unsigned char **at, const unsigned char *end, size_t *len)
{
    if (*len != 15) return true;
    for (unsigned byte = 255; byte == 255;) {
        if (*at == end || *len > INT_MAX) return false;
        byte = *(*at)++;
        *len += byte;
    }
    return true;
}

/* lz4's lz4_Block_format.md: literals, then a match, and at the end literals alone. */
static bool unpack_lz4_raw(const unsigned char *in, size_t in_len, unsigned char *out,
                           size_t out_len)
{
    const unsigned char *at = in, *end = in + in_len, *to_end = out + out_len;
    unsigned char *to = out;
    while (at < end) {
        unsigned token = *at++;
        size_t len = token >> 4, match = token & 15, offset;
        if (!lz4_length(&at, end, &len)) return false;
        if ((size_t)(end - at) < len || (size_t)(to_end - to) < len) return false;
        if (len) copy(to, to_end, at, end, len);
        at += len, to += len;
        if (at == end) break;
        if (end - at < 2) return false;
        offset = at[0] | (size_t)at[1] << 8;
        at += 2;
        if (!lz4_length(&at, end, &match)) return false;
        match += 4;
        if (!offset || offset > (size_t)(to - out) || (size_t)(to_end - to) < match) return false;
        repeat(to, offset, match, to_end);
        to += match;
    }
    return to == to_end;
}

static bool unpack_none(const unsigned char *in, size_t in_len, unsigned char *out, size_t out_len)
{
    if (in_len == out_len && in_len) memcpy(out, in, in_len);
    return in_len == out_len;
}

/* Members may follow each other; zlib's own head is taken, too. */
static bool unpack_gzip(const unsigned char *in, size_t in_len, unsigned char *out, size_t out_len)
{
    enum { EITHER = 15 + 32 };
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)in, .next_out = out};
    int result = Z_OK;
    if (in_len > UINT_MAX || out_len > UINT_MAX || inflateInit2(&z, EITHER) != Z_OK) return false;
    z.avail_in = (unsigned)in_len, z.avail_out = (unsigned)out_len;
    while (result == Z_OK) {
        result = inflate(&z, Z_FINISH);
        if (result == Z_STREAM_END && z.avail_in) result = inflateReset(&z);
    }
    inflateEnd(&z);
    return result == Z_STREAM_END && !z.avail_out;
}

static bool unpack_brotli(const unsigned char *in, size_t in_len, unsigned char *out,
                          size_t out_len)
{
    size_t made = out_len;
    return BrotliDecoderDecompress(in_len, in, &made, out) == BROTLI_DECODER_RESULT_SUCCESS &&
           made == out_len;
}

static bool unpack_zstd(const unsigned char *in, size_t in_len, unsigned char *out, size_t out_len)
{
    return ZSTD_decompress(out, out_len, in, in_len) == out_len;
}

static const struct {
    long long number;
    const char *word;
    bool (*unpack)(const unsigned char *, size_t, unsigned char *, size_t);
} codecs[] = {
#define X(name, word, number) {number, #word, unpack_##word},
    CODEC_LIST(X)
#undef X
};

enum { CODECS = sizeof codecs / sizeof *codecs };

enum status codec_find(long long number, const char *where, enum codec *out)
{
    for (int i = 0; i < CODECS; i++)
        if (codecs[i].number == number) {
            *out = (enum codec)number;
            return STATUS_OK;
        }
    FAIL(UNSUPPORTED,
         "%s: packed by codec %lld%s; none, snappy, gzip, brotli, zstd and lz4_raw are read", where,
         number, number == 5 ? " (Hadoop's lz4)" : "");
}

enum status codec_unpack(enum codec codec, const unsigned char *in, size_t in_len,
                         unsigned char *out, size_t out_len, const char *where)
{
    for (int i = 0; i < CODECS; i++) {
        if (codecs[i].number != (long long)codec) continue;
        if (codecs[i].unpack(in, in_len, out, out_len)) return STATUS_OK;
        FAIL(DATA, "%s: %zu bytes are not a block of %s that unpacks to %zu", where, in_len,
             codecs[i].word, out_len);
    }
    BUG("unknown codec");
}
