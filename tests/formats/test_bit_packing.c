// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/bit_packing.h"

static struct reader over(const unsigned char *bytes, size_t len)
{
    return (struct reader){bytes, bytes + len, "bytes"};
}

/* The example of Parquet's Encodings.md, and a run of 10 fives behind it. */
static const unsigned char mixed[] = {3, 0x88, 0xC6, 0xFA, 20, 5};

TEST(runs_and_groups_are_read_in_pieces_of_any_size)
{
    for (size_t piece = 1; piece <= 18; piece++) {
        struct hybrid h;
        uint32_t out[18];
        CHECK_STATUS(OK, hybrid_init(&h, over(mixed, sizeof mixed), 3));
        for (size_t at = 0; at < 18; at += piece)
            CHECK_STATUS(OK, hybrid_take(&h, out + at, 18 - at < piece ? 18 - at : piece));
        for (uint32_t i = 0; i < 18; i++) CHECK(out[i] == (i < 8 ? i : 5));
        CHECK_STATUS(DATA, hybrid_take(&h, out, 1));
    }
}

TEST(runs_cut_off_are_errors)
{
    uint32_t out[18];
    for (size_t len = 0; len < sizeof mixed; len++) {
        struct hybrid h;
        CHECK_STATUS(OK, hybrid_init(&h, over(mixed, len), 3));
        CHECK_STATUS(DATA, hybrid_take(&h, out, 18));
    }
}

TEST(values_of_no_bits_and_of_all_32)
{
    struct hybrid h;
    uint32_t out[8];
    const unsigned char none[] = {16}, all[] = {2, 0xFF, 0xFF, 0xFF, 0xFF}, wide[] = {2, 8};
    CHECK_STATUS(OK, hybrid_init(&h, over(none, 1), 0));
    CHECK_STATUS(OK, hybrid_take(&h, out, 8));
    CHECK(!out[0] && !out[7]);
    CHECK_STATUS(OK, hybrid_init(&h, over(all, 5), 32));
    CHECK_STATUS(OK, hybrid_take(&h, out, 1));
    CHECK(out[0] == UINT32_MAX);
    CHECK_STATUS(OK, hybrid_init(&h, over(wide, 2), 3));
    CHECK_STATUS(DATA, hybrid_take(&h, out, 1));
    CHECK_STATUS(DATA, hybrid_init(&h, over(wide, 2), 33));
}

/* Encodings.md: 7, 5, 3, 1, 2, 3, 4, 5 in blocks of 128 values, 4 parts; least delta -2. */
static const unsigned char deltas[] = {0x80, 1,    4,    8, 14, 3, 2, 0, 0,
                                       0,    0xC0, 0x3F, 0, 0,  0, 0, 0, 0};

TEST(deltas_are_summed)
{
    static const int64_t want[] = {7, 5, 3, 1, 2, 3, 4, 5};
    int64_t out[8];
    struct reader r = over(deltas, sizeof deltas);
    CHECK_STATUS(OK, delta_read(&r, out, 8, false));
    CHECK(!memcmp(out, want, sizeof want));
    CHECK(!reader_left(&r));
}

TEST(deltas_cut_off_or_of_another_count_are_errors)
{
    int64_t out[9];
    for (size_t len = 0; len < sizeof deltas; len++) {
        struct reader r = over(deltas, len);
        CHECK_STATUS(DATA, delta_read(&r, out, 8, false));
    }
    struct reader r = over(deltas, sizeof deltas);
    CHECK_STATUS(DATA, delta_read(&r, out, 9, false));
    CHECK_MESSAGE("8 delta values where 9 are wanted");
}

TEST(deltas_wrap)
{
    /* two values, the second by the least delta alone: INT32_MAX + 1 */
    const unsigned char bytes[] = {0x80, 1, 4, 2, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F, 2, 0, 0, 0, 0};
    int64_t out[2];
    struct reader r = over(bytes, sizeof bytes);
    CHECK_STATUS(OK, delta_read(&r, out, 2, true));
    CHECK(out[0] == INT32_MAX && out[1] == INT32_MIN);
}

TEST(delta_blocks_of_odd_sizes_are_errors)
{
    const unsigned char none[] = {0, 4, 1, 0}, odd[] = {0x80, 1, 3, 1, 0}, thin[] = {16, 4, 1, 0};
    int64_t out[1];
    struct reader r = over(none, sizeof none), s = over(odd, sizeof odd),
                  t = over(thin, sizeof thin);
    CHECK_STATUS(DATA, delta_read(&r, out, 1, false));
    CHECK_STATUS(DATA, delta_read(&s, out, 1, false));
    CHECK_STATUS(DATA, delta_read(&t, out, 1, false));
}
