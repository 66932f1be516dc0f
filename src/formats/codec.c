// SPDX-License-Identifier: Apache-2.0
#include "formats/codec.h"

#include "base/file.h"

#include <brotli/decode.h>
#include <limits.h>
#include <stdlib.h>
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

/* lz4's lz4_Block_format.md: literals, then a match, and at the end literals alone.  Matches reach
 * back to `begin`; *out moves behind what is unpacked. */
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
        if (len) copy(to, to_end, at, end, len);
        at += len, to += len;
        if (at == end) break;
        if (end - at < 2) return false;
        offset = at[0] | (size_t)at[1] << 8;
        at += 2;
        if (!lz4_length(&at, end, &match)) return false;
        match += 4;
        if (!offset || offset > (size_t)(to - begin) || (size_t)(to_end - to) < match) return false;
        repeat(to, offset, match, to_end);
        to += match;
    }
    *out = to;
    return true;
}

static bool unpack_lz4_raw(const unsigned char *in, size_t in_len, unsigned char *out,
                           size_t out_len)
{
    unsigned char *to = out;
    return lz4_block(in, in_len, out, &to, out + out_len) && to == out + out_len;
}

static uint32_t big_endian(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint32_t little_endian(const unsigned char *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

/* Hadoop's BlockCompressorStream: how many bytes follow unpacked, then blocks that give them, each
 * behind its length. */
static bool unpack_hadoop(const unsigned char *in, size_t in_len, unsigned char *out,
                          size_t out_len)
{
    const unsigned char *at = in, *end = in + in_len;
    unsigned char *to = out;
    while (end - at >= 4) {
        size_t len = big_endian(at);
        const unsigned char *begin = to, *to_end = to + len;
        if (len > out_len - (size_t)(to - out)) return false;
        at += 4;
        while (to < to_end) {
            if (end - at < 4 || big_endian(at) > (size_t)(end - at) - 4) return false;
            size_t packed = big_endian(at);
            const unsigned char *block = to;
            if (!lz4_block(at + 4, packed, begin, &to, to_end) || to == block) return false;
            at += 4 + packed;
        }
    }
    return at == end && to == out + out_len;
}

static bool unpack_lz4(const unsigned char *in, size_t in_len, unsigned char *out, size_t out_len)
{
    return unpack_hadoop(in, in_len, out, out_len) || unpack_lz4_raw(in, in_len, out, out_len);
}

/* XXH32 of seed 0, by which frames are checked (github.com/Cyan4973/xxHash, xxhash_spec.md). */
static uint32_t xxh32(const unsigned char *at, size_t len)
{
    const uint32_t p1 = 0x9E3779B1, p2 = 0x85EBCA77, p3 = 0xC2B2AE3D, p4 = 0x27D4EB2F;
    const uint32_t p5 = 0x165667B1;
    const unsigned char *end = at + len;
#define TURN(x, n) ((x) << (n) | (x) >> (32 - (n)))
    uint32_t lanes[4] = {p1 + p2, p2, 0, 0 - p1}, sum = p5;
    for (; end - at >= 16; at += 16)
        for (int i = 0; i < 4; i++)
            lanes[i] += little_endian(at + 4 * i) * p2, lanes[i] = TURN(lanes[i], 13) * p1;
    if (len >= 16)
        sum = TURN(lanes[0], 1) + TURN(lanes[1], 7) + TURN(lanes[2], 12) + TURN(lanes[3], 18);
    sum += (uint32_t)len;
    for (; end - at >= 4; at += 4) {
        sum += little_endian(at) * p3;
        sum = TURN(sum, 17) * p4;
    }
    for (; at < end; at++) {
        sum += *at * p5;
        sum = TURN(sum, 11) * p1;
    }
#undef TURN
    sum = (sum ^ sum >> 15) * p2;
    sum = (sum ^ sum >> 13) * p3;
    return sum ^ sum >> 16;
}

/* lz4's lz4_Frame_format.md; one frame, of blocks that may reach back into those before. */
static bool unpack_lz4_frame(const unsigned char *in, size_t in_len, unsigned char *out,
                             size_t out_len)
{
    enum { WITH_DICTIONARY = 1, SUM = 4, SIZE = 8, BLOCK_SUMS = 16, VERSION = 0xC0 };
    const uint32_t plain = UINT32_C(1) << 31;
    const unsigned char *at = in, *end = in + in_len, *to_end = out + out_len;
    unsigned char *to = out;
    if (in_len < 7 || little_endian(in) != 0x184D2204) return false;
    unsigned flags = in[4];
    size_t head = flags & SIZE ? 10 : 2;
    if ((flags & VERSION) != 0x40 || flags & WITH_DICTIONARY || in_len < 5 + head) return false;
    if (in[4 + head] != (xxh32(in + 4, head) >> 8 & 0xFF)) return false;
    for (at += 5 + head;;) {
        if (end - at < 4) return false;
        uint32_t size = little_endian(at), len = size & ~plain;
        size_t sum = flags & BLOCK_SUMS ? 4 : 0;
        at += 4;
        if (!size) break;
        if ((size_t)(end - at) < len + sum) return false;
        if (sum && little_endian(at + len) != xxh32(at, len)) return false;
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
    if (flags & SUM) {
        if (end - at < 4 || little_endian(at) != xxh32(out, out_len)) return false;
        at += 4;
    }
    return at == end;
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
    size_t most;
} codecs[] = {
#define X(name, word, number, most) {number, #word, unpack_##word, most},
    CODEC_LIST(X)
#undef X
};

enum { CODECS = sizeof codecs / sizeof *codecs };

enum status codec_find(long long number, const char *where, enum codec *out)
{
    for (int i = 0; i < CODECS && number < CODEC_OF_ARROW; i++)
        if (codecs[i].number == number) {
            *out = (enum codec)number;
            return STATUS_OK;
        }
    FAIL(UNSUPPORTED,
         "%s: packed by codec %lld; none, snappy, gzip, brotli, lz4, zstd and lz4_raw are read",
         where, number);
}

static size_t place_of(enum codec codec)
{
    for (size_t i = 0; i < CODECS; i++)
        if (codecs[i].number == (long long)codec) return i;
    BUG("unknown codec");
}

static enum status no_block(enum codec codec, size_t in_len, size_t out_len, const char *where)
{
    FAIL(DATA, "%s: %zu bytes are not a block of %s that unpacks to %zu", where, in_len,
         codecs[place_of(codec)].word, out_len);
}

enum status codec_unpack(enum codec codec, const unsigned char *in, size_t in_len,
                         unsigned char *out, size_t out_len, const char *where)
{
    if (codecs[place_of(codec)].unpack(in, in_len, out, out_len)) return STATUS_OK;
    return no_block(codec, in_len, out_len, where);
}

/* Brotli copies any number of bytes by a few: they are counted, and not kept. */
static bool brotli_gives(const unsigned char *in, size_t in_len, size_t out_len)
{
    enum { ROOM = 1 << 16 };
    unsigned char *room = heap(ROOM), *to;
    BrotliDecoderState *state = BrotliDecoderCreateInstance(NULL, NULL, NULL);
    BrotliDecoderResult result = BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT;
    size_t left, made = 0;
    while (state && result == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT && made <= out_len) {
        to = room, left = ROOM;
        result = BrotliDecoderDecompressStream(state, &in_len, &in, &left, &to, NULL);
        made += ROOM - left;
    }
    BrotliDecoderDestroyInstance(state);
    free(room);
    return result == BROTLI_DECODER_RESULT_SUCCESS && made == out_len;
}

enum status codec_check(enum codec codec, const unsigned char *in, size_t in_len, size_t out_len,
                        const char *where)
{
    enum { USUAL = 1024, HEAD = 16 };
    size_t most = codecs[place_of(codec)].most;
    bool good = out_len / (most ? most : USUAL) <= in_len + HEAD;
    if (good || (!most && brotli_gives(in, in_len, out_len))) return STATUS_OK;
    return no_block(codec, in_len, out_len, where);
}
