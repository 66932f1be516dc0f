// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/reader.h"

TEST(reader_reads_little_endian_values_and_stops_at_the_end)
{
    static const unsigned char bytes[] = {7, 1, 2, 3, 4, 8, 7, 6, 5, 4, 3, 2, 1, 9};
    struct reader r = {.at = bytes, .end = bytes + sizeof bytes, .name = "f"};
    uint8_t one;
    uint32_t four;
    uint64_t eight;
    const unsigned char *at;
    CHECK_STATUS(OK, reader_u8(&r, &one, "a"));
    CHECK_STATUS(OK, reader_u32(&r, &four, "b"));
    CHECK_STATUS(OK, reader_u64(&r, &eight, "c"));
    CHECK(one == 7 && four == 0x04030201 && eight == 0x0102030405060708);
    CHECK_STATUS(DATA, reader_u32(&r, &four, "the tail"));
    CHECK_MESSAGE("f: the tail needs 4 bytes, but only 1 are left");
    CHECK(reader_left(&r) == 1);
    CHECK_STATUS(OK, reader_bytes(&r, 1, &at, "d"));
    CHECK(*at == 9 && reader_left(&r) == 0);
    CHECK_STATUS(OK, reader_bytes(&r, 0, &at, "e"));
}

TEST(reader_varint_reads_64_bits_and_stays_where_it_fails)
{
    static const unsigned char bytes[] = {0x96, 0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                          0xFF, 0xFF, 0xFF, 0xFF, 0x01, 0x80};
    struct reader r = {.at = bytes, .end = bytes + sizeof bytes, .name = "f"};
    uint64_t x;
    CHECK_STATUS(OK, reader_varint(&r, &x, "a length"));
    CHECK(x == 150);
    CHECK_STATUS(OK, reader_varint(&r, &x, "a length"));
    CHECK(x == UINT64_MAX);
    CHECK_STATUS(DATA, reader_varint(&r, &x, "a length"));
    CHECK_MESSAGE("f: a length needs 1 bytes");
    CHECK(reader_left(&r) == 1);
    unsigned char endless[16];
    memset(endless, 0x80, sizeof endless);
    r = (struct reader){.at = endless, .end = endless + sizeof endless, .name = "f"};
    CHECK_STATUS(DATA, reader_varint(&r, &x, "a length"));
    CHECK_MESSAGE("f: a length is a varint of more than 64 bits");
    CHECK(r.at == endless);
    unsigned char bit_64[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02};
    r = (struct reader){.at = bit_64, .end = bit_64 + sizeof bit_64, .name = "f"};
    CHECK_STATUS(DATA, reader_varint(&r, &x, "a length"));
    CHECK_MESSAGE("f: a length is a varint of more than 64 bits");
    CHECK(r.at == bit_64);
    bit_64[9] = 1;
    CHECK_STATUS(OK, reader_varint(&r, &x, "a length"));
    CHECK(x == (uint64_t)1 << 63 && !reader_left(&r));
}

TEST(reader_count_checks_that_the_items_can_be_read)
{
    static const unsigned char bytes[64];
    struct reader r = {.at = bytes, .end = bytes + sizeof bytes, .name = "f"};
    size_t total = 0;
    CHECK_STATUS(OK, reader_count(&r, 8, 8, &total, "x"));
    CHECK(total == 64);
    CHECK_STATUS(DATA, reader_count(&r, 9, 8, &total, "x"));
    CHECK_STATUS(DATA, reader_count(&r, UINT64_MAX / 4, 8, &total, "offsets"));
    CHECK_MESSAGE("offsets claims");
}
