// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/bit_packing.h"

static struct reader reader_over(const unsigned char *bytes, size_t len)
{
    return (struct reader){bytes, bytes + len, "bytes"};
}

/* The example in Parquet's Encodings.md, followed by an RLE run of 10 fives. */
static const unsigned char mixed[] = {3, 0x88, 0xC6, 0xFA, 20, 5};

TEST(hybrid_runs_decode_in_batches_of_any_size)
{
    for (size_t batch = 1; batch <= 18; batch++) {
        struct bit_packing h;
        uint32_t out[18];
        CHECK_STATUS(OK, bit_packing_init(&h, reader_over(mixed, sizeof mixed), 3));
        for (size_t at = 0; at < 18; at += batch)
            CHECK_STATUS(OK, bit_packing_read(&h, out + at, 18 - at < batch ? 18 - at : batch));
        for (uint32_t i = 0; i < 18; i++) CHECK(out[i] == (i < 8 ? i : 5));
        CHECK_STATUS(DATA, bit_packing_read(&h, out, 1));
    }
}

TEST(truncated_hybrid_runs_are_rejected)
{
    uint32_t out[18];
    for (size_t len = 0; len < sizeof mixed; len++) {
        struct bit_packing h;
        CHECK_STATUS(OK, bit_packing_init(&h, reader_over(mixed, len), 3));
        CHECK_STATUS(DATA, bit_packing_read(&h, out, 18));
    }
}

TEST(hybrid_widths_0_and_32_decode)
{
    struct bit_packing h;
    uint32_t out[8];
    const unsigned char none[] = {16}, all[] = {2, 0xFF, 0xFF, 0xFF, 0xFF}, wide[] = {2, 8};
    CHECK_STATUS(OK, bit_packing_init(&h, reader_over(none, 1), 0));
    CHECK_STATUS(OK, bit_packing_read(&h, out, 8));
    CHECK(!out[0] && !out[7]);
    CHECK_STATUS(OK, bit_packing_init(&h, reader_over(all, 5), 32));
    CHECK_STATUS(OK, bit_packing_read(&h, out, 1));
    CHECK(out[0] == UINT32_MAX);
    CHECK_STATUS(OK, bit_packing_init(&h, reader_over(wide, 2), 3));
    CHECK_STATUS(DATA, bit_packing_read(&h, out, 1));
    CHECK_STATUS(DATA, bit_packing_init(&h, reader_over(wide, 2), 33));
}

/* Encodings.md: 7, 5, 3, 1, 2, 3, 4, 5 in blocks of 128 values, 4 miniblocks, min delta -2. */
static const unsigned char deltas[] = {0x80, 1,    4,    8, 14, 3, 2, 0, 0,
                                       0,    0xC0, 0x3F, 0, 0,  0, 0, 0, 0};

TEST(delta_binary_packed_decodes)
{
    static const int64_t want[] = {7, 5, 3, 1, 2, 3, 4, 5};
    int64_t out[8];
    struct reader r = reader_over(deltas, sizeof deltas);
    CHECK_STATUS(OK, bit_packing_read_deltas(&r, out, 8, false));
    CHECK(!memcmp(out, want, sizeof want));
    CHECK(!reader_left(&r));
}

TEST(truncated_deltas_and_wrong_counts_are_rejected)
{
    int64_t out[9];
    for (size_t len = 0; len < sizeof deltas; len++) {
        struct reader r = reader_over(deltas, len);
        CHECK_STATUS(DATA, bit_packing_read_deltas(&r, out, 8, false));
    }
    struct reader r = reader_over(deltas, sizeof deltas);
    CHECK_STATUS(DATA, bit_packing_read_deltas(&r, out, 9, false));
    CHECK_MESSAGE("expected 9 delta values, got 8");
}

TEST(delta_sums_wrap_around_at_32_bits)
{
    /* two values; the second is INT32_MAX + 1, from the minimum delta alone */
    const unsigned char bytes[] = {0x80, 1, 4, 2, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F, 2, 0, 0, 0, 0};
    int64_t out[2];
    struct reader r = reader_over(bytes, sizeof bytes);
    CHECK_STATUS(OK, bit_packing_read_deltas(&r, out, 2, true));
    CHECK(out[0] == INT32_MAX && out[1] == INT32_MIN);
}

TEST(invalid_delta_block_sizes_are_rejected)
{
    const unsigned char none[] = {0, 4, 1, 0}, odd[] = {0x80, 1, 3, 1, 0}, thin[] = {16, 4, 1, 0};
    int64_t out[1];
    struct reader r = reader_over(none, sizeof none), s = reader_over(odd, sizeof odd),
                  t = reader_over(thin, sizeof thin);
    CHECK_STATUS(DATA, bit_packing_read_deltas(&r, out, 1, false));
    CHECK_STATUS(DATA, bit_packing_read_deltas(&s, out, 1, false));
    CHECK_STATUS(DATA, bit_packing_read_deltas(&t, out, 1, false));
}
