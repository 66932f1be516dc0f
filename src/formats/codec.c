// SPDX-License-Identifier: Apache-2.0
#include "formats/codec.h"

#include "base/file.h"

#include <brotli/decode.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { CHUNK = 16 }; /* bytes per copy, if both buffers have room */

/* Copies a match: `len` bytes from `offset` bytes before `to`.  The two may overlap. */
static inline void copy_match(unsigned char *to, size_t offset, size_t len,
                              const unsigned char *end)
{
    const unsigned char *from = to - offset;
    if (offset >= CHUNK && (size_t)(end - to) >= len + CHUNK) {
        for (size_t i = 0; i < len; i += CHUNK) memcpy(to + i, from + i, CHUNK);
    } else if (offset >= 8 && (size_t)(end - to) >= len + 8) {
        for (size_t i = 0; i < len; i += 8) memcpy(to + i, from + i, 8);
    } else {
        for (size_t i = 0; i < len; i++) to[i] = from[i];
    }
}

static inline void copy_literal(unsigned char *to, const unsigned char *end,
                                const unsigned char *from, const unsigned char *from_end,
                                size_t len)
{
    if (len <= CHUNK && end - to >= CHUNK && from_end - from >= CHUNK)
        memcpy(to, from, CHUNK);
    else
        memcpy(to, from, len);
}

/* Source: google/snappy, format_description.txt.  The length, then literals and copies. */
static bool decompress_snappy(const unsigned char *in, size_t in_len, unsigned char *out,
                              size_t out_len)
{
    const unsigned char *at = in, *end = in + in_len, *to_end = out + out_len;
    unsigned char *to = out;
    uint64_t uncompressed = 0;
    for (int shift = 0;; shift += 7) {
        if (at == end || shift > 28) return false;
        uncompressed |= (uint64_t)(*at & 0x7F) << shift;
        if (!(*at++ & 0x80)) break;
    }
    if (uncompressed != out_len) return false;
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
            copy_literal(to, to_end, at, end, len);
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
        copy_match(to, offset, len, to_end);
        to += len;
    }
    return to == to_end;
}

/* Reads the extension of an LZ4 length: bytes are added while they are 255. */
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

/* Source: lz4, lz4_Block_format.md.  Sequences of literals and a match; the last has literals only.
 * Matches reach back to `begin` at most.  Advances *out past the output. */
static bool lz4_block(const unsigned char *in, size_t in_len, const unsigned char *begin,
                      unsigned char **out, const unsigned char *to_end)
{
    const unsigned char *at = in, *end = in + in_len;
    unsigned char *to = *out;
    while (at < end) {
        unsigned token = *at++;
        size_t len = token >> 4, match = token & 15, offset;
        if (!lz4_length(&at, end, &len)) return false;
        if ((size_t)(end - at) < len || (size_t)(to_end - to) < len) return false;
        if (len) copy_literal(to, to_end, at, end, len);
        at += len, to += len;
        if (at == end) break;
        if (end - at < 2) return false;
        offset = at[0] | (size_t)at[1] << 8;
        at += 2;
        if (!lz4_length(&at, end, &match)) return false;
        match += 4;
        if (!offset || offset > (size_t)(to - begin) || (size_t)(to_end - to) < match) return false;
        copy_match(to, offset, match, to_end);
        to += match;
    }
    *out = to;
    return true;
}

static bool decompress_lz4_raw(const unsigned char *in, size_t in_len, unsigned char *out,
                               size_t out_len)
{
    unsigned char *to = out;
    return lz4_block(in, in_len, out, &to, out + out_len) && to == out + out_len;
}

static uint32_t read_u32_be(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint32_t read_u32_le(const unsigned char *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

/* Hadoop's BlockCompressorStream: frames of the uncompressed length, then blocks that yield it,
 * each prefixed with its compressed length. */
static bool decompress_hadoop(const unsigned char *in, size_t in_len, unsigned char *out,
                              size_t out_len)
{
    const unsigned char *at = in, *end = in + in_len;
    unsigned char *to = out;
    while (end - at >= 4) {
        size_t len = read_u32_be(at);
        const unsigned char *begin = to, *to_end = to + len;
        if (len > out_len - (size_t)(to - out)) return false;
        at += 4;
        while (to < to_end) {
            if (end - at < 4 || read_u32_be(at) > (size_t)(end - at) - 4) return false;
            size_t packed = read_u32_be(at);
            const unsigned char *block = to;
            if (!lz4_block(at + 4, packed, begin, &to, to_end) || to == block) return false;
            at += 4 + packed;
        }
    }
    return at == end && to == out + out_len;
}

static bool decompress_lz4(const unsigned char *in, size_t in_len, unsigned char *out,
                           size_t out_len)
{
    return decompress_hadoop(in, in_len, out, out_len) ||
           decompress_lz4_raw(in, in_len, out, out_len);
}

/* XXH32 with seed 0, the checksum of frames.  Source: Cyan4973/xxHash, xxhash_spec.md. */
static uint32_t xxh32(const unsigned char *at, size_t len)
{
    const uint32_t p1 = 0x9E3779B1, p2 = 0x85EBCA77, p3 = 0xC2B2AE3D, p4 = 0x27D4EB2F;
    const uint32_t p5 = 0x165667B1;
    const unsigned char *end = at + len;
#define ROTL(x, n) ((x) << (n) | (x) >> (32 - (n)))
    uint32_t lanes[4] = {p1 + p2, p2, 0, 0 - p1}, sum = p5;
    for (; end - at >= 16; at += 16)
        for (int i = 0; i < 4; i++)
            lanes[i] += read_u32_le(at + 4 * i) * p2, lanes[i] = ROTL(lanes[i], 13) * p1;
    if (len >= 16)
        sum = ROTL(lanes[0], 1) + ROTL(lanes[1], 7) + ROTL(lanes[2], 12) + ROTL(lanes[3], 18);
    sum += (uint32_t)len;
    for (; end - at >= 4; at += 4) {
        sum += read_u32_le(at) * p3;
        sum = ROTL(sum, 17) * p4;
    }
    for (; at < end; at++) {
        sum += *at * p5;
        sum = ROTL(sum, 11) * p1;
    }
#undef ROTL
    sum = (sum ^ sum >> 15) * p2;
    sum = (sum ^ sum >> 13) * p3;
    return sum ^ sum >> 16;
}

/* Source: lz4, lz4_Frame_format.md.  One frame; its blocks may be linked: matches reach back into
 * earlier blocks. */
static bool decompress_lz4_frame(const unsigned char *in, size_t in_len, unsigned char *out,
                                 size_t out_len)
{
    enum {
        DICTIONARY_ID = 1,
        CONTENT_CHECKSUM = 4,
        CONTENT_SIZE = 8,
        BLOCK_CHECKSUMS = 16,
        VERSION = 0xC0
    };
    const uint32_t plain = UINT32_C(1) << 31;
    const unsigned char *at = in, *end = in + in_len, *to_end = out + out_len;
    unsigned char *to = out;
    if (in_len < 7 || read_u32_le(in) != 0x184D2204) return false;
    unsigned flags = in[4];
    size_t head = flags & CONTENT_SIZE ? 10 : 2;
    if ((flags & VERSION) != 0x40 || flags & DICTIONARY_ID || in_len < 5 + head) return false;
    if (in[4 + head] != (xxh32(in + 4, head) >> 8 & 0xFF)) return false;
    for (at += 5 + head;;) {
        if (end - at < 4) return false;
        uint32_t size = read_u32_le(at), len = size & ~plain;
        size_t sum = flags & BLOCK_CHECKSUMS ? 4 : 0;
        at += 4;
        if (!size) break;
        if ((size_t)(end - at) < len + sum) return false;
        if (sum && read_u32_le(at + len) != xxh32(at, len)) return false;
        if (size != len) {
            if ((size_t)(to_end - to) < len) return false;
            if (len) memcpy(to, at, len);
            to += len;
        } else if (!lz4_block(at, len, out, &to, to_end)) {
            return false;
        }
        at += len + sum;
    }
    if (to != to_end) return false;
    if (flags & CONTENT_CHECKSUM) {
        if (end - at < 4 || read_u32_le(at) != xxh32(out, out_len)) return false;
        at += 4;
    }
    return at == end;
}

static bool decompress_none(const unsigned char *in, size_t in_len, unsigned char *out,
                            size_t out_len)
{
    if (in_len == out_len && in_len) memcpy(out, in, in_len);
    return in_len == out_len;
}

/* Accepts concatenated gzip members, and the zlib format. */
static bool decompress_gzip(const unsigned char *in, size_t in_len, unsigned char *out,
                            size_t out_len)
{
    enum { GZIP_OR_ZLIB = 15 + 32 };
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)in, .next_out = out};
    int result = Z_OK;
    if (in_len > UINT_MAX || out_len > UINT_MAX || inflateInit2(&z, GZIP_OR_ZLIB) != Z_OK)
        return false;
    z.avail_in = (unsigned)in_len, z.avail_out = (unsigned)out_len;
    while (result == Z_OK) {
        result = inflate(&z, Z_FINISH);
        if (result == Z_STREAM_END && z.avail_in) result = inflateReset(&z);
    }
    inflateEnd(&z);
    return result == Z_STREAM_END && !z.avail_out;
}

static bool decompress_brotli(const unsigned char *in, size_t in_len, unsigned char *out,
                              size_t out_len)
{
    size_t total = out_len;
    return BrotliDecoderDecompress(in_len, in, &total, out) == BROTLI_DECODER_RESULT_SUCCESS &&
           total == out_len;
}

static bool decompress_zstd(const unsigned char *in, size_t in_len, unsigned char *out,
                            size_t out_len)
{
    return ZSTD_decompress(out, out_len, in, in_len) == out_len;
}

static const struct {
    long long number;
    const char *word;
    bool (*decompress)(const unsigned char *, size_t, unsigned char *, size_t);
    size_t max_expansion;
} codecs[] = {
#define X(name, word, number, max_expansion) {number, #word, decompress_##word, max_expansion},
    CODEC_LIST(X)
#undef X
};

enum { CODECS = sizeof codecs / sizeof *codecs };

enum status codec_from_parquet(long long number, const char *where, enum codec *out)
{
    for (int i = 0; i < CODECS && number < CODEC_ARROW_ONLY; i++)
        if (codecs[i].number == number) {
            *out = (enum codec)number;
            return STATUS_OK;
        }
    FAIL(UNSUPPORTED,
         "%s: compression codec %lld is not supported: expected none, snappy, gzip, "
         "brotli, lz4, zstd or lz4_raw",
         where, number);
}

static size_t codec_index(enum codec codec)
{
    for (size_t i = 0; i < CODECS; i++)
        if (codecs[i].number == (long long)codec) return i;
    BUG("unknown codec");
}

static enum status fail_corrupt(enum codec codec, size_t in_len, size_t out_len, const char *where)
{
    FAIL(DATA, "%s: %zu bytes are not a valid %s block that decompresses to %zu bytes", where,
         in_len, codecs[codec_index(codec)].word, out_len);
}

enum status codec_decompress(enum codec codec, const unsigned char *in, size_t in_len,
                             unsigned char *out, size_t out_len, const char *where)
{
    if (codecs[codec_index(codec)].decompress(in, in_len, out, out_len)) return STATUS_OK;
    return fail_corrupt(codec, in_len, out_len, where);
}

/* Brotli's expansion is unbounded, so decompress into a scratch buffer and count the bytes. */
static bool brotli_yields(const unsigned char *in, size_t in_len, size_t out_len)
{
    enum { BUFFER = 1 << 16 };
    unsigned char *buffer = heap(BUFFER), *to;
    BrotliDecoderState *state = BrotliDecoderCreateInstance(NULL, NULL, NULL);
    BrotliDecoderResult result = BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT;
    size_t left, total = 0;
    while (state && result == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT && total <= out_len) {
        to = buffer, left = BUFFER;
        result = BrotliDecoderDecompressStream(state, &in_len, &in, &left, &to, NULL);
        total += BUFFER - left;
    }
    BrotliDecoderDestroyInstance(state);
    free(buffer);
    return result == BROTLI_DECODER_RESULT_SUCCESS && total == out_len;
}

enum status codec_check_size(enum codec codec, const unsigned char *in, size_t in_len,
                             size_t out_len, const char *where)
{
    enum { DEFAULT_EXPANSION = 1024, HEADER = 16 };
    size_t max_expansion = codecs[codec_index(codec)].max_expansion;
    bool good = out_len / (max_expansion ? max_expansion : DEFAULT_EXPANSION) <= in_len + HEADER;
    if (good || (!max_expansion && brotli_yields(in, in_len, out_len))) return STATUS_OK;
    return fail_corrupt(codec, in_len, out_len, where);
}
