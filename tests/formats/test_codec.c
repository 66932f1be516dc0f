// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/codec.h"

static const char text[] =
    "to be, or not to be, or not to be: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
enum { LEN = sizeof text - 1 };

/* The text as pyarrow 26.0.1 packs it; of LZ4 in Hadoop's frame. */
static const struct {
    enum codec codec;
    size_t len;
    unsigned char bytes[64];
} packed[] = {
    {CODEC_SNAPPY, 26, {0x53, 0x34, 0x74, 0x6f, 0x20, 0x62, 0x65, 0x2c, 0x20,
                        0x6f, 0x72, 0x20, 0x6e, 0x6f, 0x74, 0x20, 0x4a, 0x0e,
                        0x00, 0x08, 0x3a, 0x20, 0x61, 0xba, 0x01, 0x00}},
    {CODEC_LZ4_RAW, 31, {0xef, 0x74, 0x6f, 0x20, 0x62, 0x65, 0x2c, 0x20, 0x6f, 0x72, 0x20,
                         0x6e, 0x6f, 0x74, 0x20, 0x0e, 0x00, 0x00, 0x3f, 0x3a, 0x20, 0x61,
                         0x01, 0x00, 0x17, 0x50, 0x61, 0x61, 0x61, 0x61, 0x61}},
    {CODEC_BROTLI, 31, {0x1b, 0x52, 0x00, 0x00, 0x04, 0x5a, 0x72, 0xa4, 0x37, 0x0f, 0x28,
                        0xb3, 0x40, 0x6a, 0xfb, 0x7d, 0x02, 0xe3, 0xcd, 0x3e, 0xe9, 0x3c,
                        0xab, 0xaf, 0x88, 0x4f, 0xec, 0xe8, 0x9e, 0x4a, 0x13}},
    {CODEC_GZIP, 41, {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x2b,
                      0xc9, 0x57, 0x48, 0x4a, 0xd5, 0x51, 0xc8, 0x2f, 0x52, 0xc8, 0xcb,
                      0x2f, 0x51, 0x28, 0xc1, 0xe4, 0x59, 0x29, 0x24, 0x92, 0x08, 0x00,
                      0xb6, 0x6d, 0xf8, 0x90, 0x53, 0x00, 0x00, 0x00}},
    {CODEC_ZSTD, 35, {0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x53, 0xd5, 0x00, 0x00, 0x88, 0x74, 0x6f,
                      0x20, 0x62, 0x65, 0x2c, 0x20, 0x6f, 0x72, 0x20, 0x6e, 0x6f, 0x74, 0x20,
                      0x3a, 0x20, 0x61, 0x02, 0x00, 0xe0, 0xa2, 0x21, 0x92, 0xa9, 0x04}},
    {CODEC_LZ4_FRAME, 46, {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 0x1f, 0x00, 0x00, 0x00, 0xef,
                           0x74, 0x6f, 0x20, 0x62, 0x65, 0x2c, 0x20, 0x6f, 0x72, 0x20, 0x6e, 0x6f,
                           0x74, 0x20, 0x0e, 0x00, 0x00, 0x3f, 0x3a, 0x20, 0x61, 0x01, 0x00, 0x17,
                           0x50, 0x61, 0x61, 0x61, 0x61, 0x61, 0x00, 0x00, 0x00, 0x00}},
    {CODEC_LZ4, 39, {0x00, 0x00, 0x00, 0x53, 0x00, 0x00, 0x00, 0x1f, 0xef, 0x74, 0x6f, 0x20, 0x62,
                     0x65, 0x2c, 0x20, 0x6f, 0x72, 0x20, 0x6e, 0x6f, 0x74, 0x20, 0x0e, 0x00, 0x00,
                     0x3f, 0x3a, 0x20, 0x61, 0x01, 0x00, 0x17, 0x50, 0x61, 0x61, 0x61, 0x61, 0x61}},
};
enum { CODECS = sizeof packed / sizeof *packed };

TEST(every_codec_unpacks_what_pyarrow_packed)
{
    unsigned char out[LEN];
    for (int i = 0; i < CODECS; i++) {
        memset(out, 0, LEN);
        CHECK_STATUS(OK,
                     codec_unpack(packed[i].codec, packed[i].bytes, packed[i].len, out, LEN, "x"));
        CHECK(!memcmp(out, text, LEN));
    }
    CHECK_STATUS(OK, codec_unpack(CODEC_NONE, (const unsigned char *)text, LEN, out, LEN, "x"));
    CHECK(!memcmp(out, text, LEN));
}

/* Every block stands in memory of its own, so that a read or write beyond it is seen. */
TEST(blocks_cut_off_or_of_another_length_are_errors)
{
    for (int i = 0; i < CODECS; i++) {
        for (size_t len = 0; len < packed[i].len; len++) {
            unsigned char *in = malloc(len + !len), *out = malloc(LEN);
            memcpy(in, packed[i].bytes, len);
            CHECK_STATUS(DATA, codec_unpack(packed[i].codec, in, len, out, LEN, "x"));
            free(in), free(out);
        }
        for (size_t len = 1; len < LEN + 3; len++) {
            unsigned char *out = malloc(len);
            if (len != LEN)
                CHECK_STATUS(DATA, codec_unpack(packed[i].codec, packed[i].bytes, packed[i].len,
                                                out, len, "x"));
            free(out);
        }
    }
}

TEST(copies_from_before_the_text_are_errors)
{
    unsigned char out[8];
    const unsigned char snappy[] = {8, 0, 'a', 7 << 2 | 2, 2, 0}, lz4[] = {0x13, 'a', 2, 0};
    const unsigned char nowhere[] = {8, 0, 'a', 7 << 2 | 2, 0, 0};
    CHECK_STATUS(DATA, codec_unpack(CODEC_SNAPPY, snappy, sizeof snappy, out, 8, "x"));
    CHECK_STATUS(DATA, codec_unpack(CODEC_SNAPPY, nowhere, sizeof nowhere, out, 8, "x"));
    CHECK_STATUS(DATA, codec_unpack(CODEC_LZ4_RAW, lz4, sizeof lz4, out, 8, "x"));
}

/* The text twice, by lz4 4.4.5 of PyPI: the second block is a match in the first, and both blocks
 * and the whole have sums. */
static const unsigned char linked[] = {
    0x04, 0x22, 0x4d, 0x18, 0x54, 0x40, 0xae, 0x1f, 0x00, 0x00, 0x00, 0xef, 0x74, 0x6f, 0x20,
    0x62, 0x65, 0x2c, 0x20, 0x6f, 0x72, 0x20, 0x6e, 0x6f, 0x74, 0x20, 0x0e, 0x00, 0x00, 0x3f,
    0x3a, 0x20, 0x61, 0x01, 0x00, 0x17, 0x50, 0x61, 0x61, 0x61, 0x61, 0x61, 0x55, 0xcc, 0x3a,
    0x34, 0x0a, 0x00, 0x00, 0x00, 0x0f, 0x53, 0x00, 0x3b, 0x50, 0x61, 0x61, 0x61, 0x61, 0x61,
    0x2e, 0x3f, 0x28, 0x1e, 0x00, 0x00, 0x00, 0x00, 0x2e, 0x6f, 0xe4, 0xa7};

TEST(blocks_of_a_frame_reach_back_into_those_before)
{
    unsigned char out[2 * LEN];
    CHECK_STATUS(OK, codec_unpack(CODEC_LZ4_FRAME, linked, sizeof linked, out, 2 * LEN, "x"));
    CHECK(!memcmp(out, text, LEN) && !memcmp(out + LEN, text, LEN));
}

TEST(any_changed_byte_of_a_frame_with_sums_is_seen)
{
    unsigned char out[2 * LEN], in[sizeof linked];
    for (size_t i = 0; i < sizeof linked; i++) {
        memcpy(in, linked, sizeof linked);
        in[i] ^= 0x10;
        CHECK_STATUS(DATA, codec_unpack(CODEC_LZ4_FRAME, in, sizeof in, out, 2 * LEN, "x"));
    }
}

TEST(hadoop_packs_several_blocks_behind_one_length_or_several)
{
    const unsigned char two[] = {0,   0,   0, 6, 0, 0, 0,    4,   0x30, 'a',
                                 'b', 'c', 0, 0, 0, 4, 0x30, 'd', 'e',  'f',
                                 0,   0,   0, 1, 0, 0, 0,    2,   0x10, 'g'};
    const unsigned char empty[] = {0, 0, 0, 1, 0, 0, 0, 0};
    unsigned char out[7];
    CHECK_STATUS(OK, codec_unpack(CODEC_LZ4, two, sizeof two, out, 7, "x"));
    CHECK(!memcmp(out, "abcdefg", 7));
    CHECK_STATUS(DATA, codec_unpack(CODEC_LZ4, empty, sizeof empty, out, 1, "x"));
    CHECK_STATUS(OK, codec_unpack(CODEC_LZ4, packed[1].bytes, packed[1].len,
                                  (unsigned char[LEN]){0}, LEN, "x"));
}

TEST(members_of_gzip_may_follow_each_other)
{
    unsigned char two[82], out[2 * LEN];
    for (int i = 0; i < 2; i++) memcpy(two + 41 * i, packed[3].bytes, 41);
    CHECK_STATUS(OK, codec_unpack(CODEC_GZIP, two, 82, out, 2 * LEN, "x"));
    CHECK(!memcmp(out, text, LEN) && !memcmp(out + LEN, text, LEN));
}

TEST(codecs_have_the_numbers_of_parquet)
{
    enum codec codec;
    CHECK_STATUS(OK, codec_find(6, "x", &codec));
    CHECK(codec == CODEC_ZSTD);
    CHECK_STATUS(OK, codec_find(5, "x", &codec));
    CHECK(codec == CODEC_LZ4);
    CHECK_STATUS(UNSUPPORTED, codec_find(3, "x", &codec));
    CHECK_STATUS(UNSUPPORTED, codec_find(CODEC_LZ4_FRAME, "x", &codec));
}
