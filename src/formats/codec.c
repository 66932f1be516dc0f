// SPDX-License-Identifier: Apache-2.0
#include "formats/codec.h"

#include <brotli/decode.h>
#include <limits.h>
#include <lz4.h>
#include <lz4frame.h>
#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

static bool decompress_snappy(const unsigned char *in, size_t in_len, unsigned char *out,
                              size_t out_len)
{
    const char *from = (const char *)in;
    size_t len = 0;
    if (snappy_uncompressed_length(from, in_len, &len) != SNAPPY_OK || len != out_len) return false;
    return snappy_uncompress(from, in_len, (char *)out, &len) == SNAPPY_OK && len == out_len;
}

/* Decompresses an LZ4 block.  Returns its length, at most out_len, or a negative number.  liblz4
 * does not reject a match offset of 0, which the format forbids: such a match yields zeros. */
static int decompress_lz4_block(const unsigned char *in, size_t in_len, unsigned char *out,
                                size_t out_len)
{
    if (in_len > INT_MAX || out_len > INT_MAX) return -1;
    return LZ4_decompress_safe((const char *)in, (char *)out, (int)in_len, (int)out_len);
}

static bool decompress_lz4_raw(const unsigned char *in, size_t in_len, unsigned char *out,
                               size_t out_len)
{
    int len = decompress_lz4_block(in, in_len, out, out_len);
    return len >= 0 && (size_t)len == out_len;
}

static uint32_t read_u32_be(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Hadoop's BlockCompressorStream: frames of the uncompressed length, then blocks that yield it,
 * each prefixed with its compressed length. */
static bool decompress_hadoop(const unsigned char *in, size_t in_len, unsigned char *out,
                              size_t out_len)
{
    const unsigned char *at = in, *end = in + in_len;
    while (end - at >= 4) {
        size_t frame_left = read_u32_be(at);
        if (frame_left > out_len) return false;
        at += 4;
        while (frame_left) {
            if (end - at < 4 || read_u32_be(at) > (size_t)(end - at) - 4) return false;
            size_t compressed = read_u32_be(at);
            int len = decompress_lz4_block(at + 4, compressed, out, frame_left);
            if (len <= 0) return false;
            at += 4 + compressed;
            out += len, out_len -= (size_t)len, frame_left -= (size_t)len;
        }
    }
    return at == end && !out_len;
}

static bool decompress_lz4(const unsigned char *in, size_t in_len, unsigned char *out,
                           size_t out_len)
{
    return decompress_hadoop(in, in_len, out, out_len) ||
           decompress_lz4_raw(in, in_len, out, out_len);
}

/* One LZ4 frame; frames with a dictionary are rejected. */
static bool decompress_lz4_frame(const unsigned char *in, size_t in_len, unsigned char *out,
                                 size_t out_len)
{
    static const unsigned char magic[] = {0x04, 0x22, 0x4D, 0x18};
    enum { MIN_HEADER = 7, FLAGS = 4, DICTIONARY_ID = 1 };
    /* `out` holds all earlier blocks, so linked blocks need no copy of them */
    const LZ4F_decompressOptions_t options = {.stableDst = 1};
    LZ4F_dctx *context;
    size_t consumed = in_len, len = out_len;
    if (in_len < MIN_HEADER || memcmp(in, magic, sizeof magic) || in[FLAGS] & DICTIONARY_ID)
        return false;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION))) return false;
    size_t hint = LZ4F_decompress(context, out, &len, in, &consumed, &options);
    LZ4F_freeDecompressionContext(context);
    return !hint && consumed == in_len && len == out_len; /* a hint of 0: the frame is complete */
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

static enum status fail_corrupt(enum codec codec, struct reader in, size_t out_len)
{
    FAIL(DATA, "%s: %zu bytes are not a valid %s block that decompresses to %zu bytes", in.name,
         reader_left(&in), codecs[codec_index(codec)].word, out_len);
}

enum status codec_decompress(enum codec codec, struct reader in, unsigned char *out, size_t out_len)
{
    if (codecs[codec_index(codec)].decompress(in.at, reader_left(&in), out, out_len))
        return STATUS_OK;
    return fail_corrupt(codec, in, out_len);
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

enum status codec_check_size(enum codec codec, struct reader in, size_t out_len)
{
    enum { DEFAULT_EXPANSION = 1024, HEADER = 16 };
    size_t in_len = reader_left(&in), max_expansion = codecs[codec_index(codec)].max_expansion;
    bool good = out_len / (max_expansion ? max_expansion : DEFAULT_EXPANSION) <= in_len + HEADER;
    if (good || (!max_expansion && brotli_yields(in.at, in_len, out_len))) return STATUS_OK;
    return fail_corrupt(codec, in, out_len);
}
