// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/thrift.h"

/* {1: i32 -3, 2: "hi", 4: true, 5: {1: i64 300}, 6: [i32 1, i32 2], 7: map, 30: double} */
static const unsigned char plain[] = {0x15, 5,    0x18, 2, 'h', 'i',  0x21, 0x1C, 0x16, 0xD8, 4,
                                      0,    0x19, 0x25, 2, 4,   0x1B, 1,    0x58, 1,    1,    'x',
                                      0x07, 60,   1,    2, 3,   4,    5,    6,    7,    8,    0};

struct fields {
    int64_t number, boolean, inner, absent;
    struct thrift_bytes bytes;
    struct thrift_list list;
    bool present;
};

static enum status read_plain(const unsigned char *bytes, size_t len, struct fields *w)
{
    struct reader r = {bytes, bytes + len, "bytes"};
    *w = (struct fields){.absent = 77};
    const struct thrift_field inner[] = {{1, .number = &w->inner}, {0}};
    const struct thrift_field fields[] = {{1, .number = &w->number},
                                          {2, .bytes = &w->bytes},
                                          {3, .number = &w->absent},
                                          {4, .number = &w->boolean},
                                          {5, .fields = inner, .present = &w->present},
                                          {6, .list = &w->list},
                                          {0}};
    TRY(thrift_read(&r, fields));
    if (reader_left(&r)) FAIL(DATA, "trailing bytes");
    return STATUS_OK;
}

TEST(listed_fields_are_read_and_others_skipped)
{
    struct fields w;
    CHECK_STATUS(OK, read_plain(plain, sizeof plain, &w));
    CHECK(w.number == -3 && w.boolean == 1 && w.inner == 300 && w.absent == 77 && w.present);
    CHECK(w.bytes.len == 2 && !memcmp(w.bytes.data, "hi", 2));
    CHECK(w.list.count == 2 && w.list.items.at[0] == 2 && w.list.items.at[1] == 4);
}

TEST(truncated_thrift_structs_are_rejected)
{
    struct fields w;
    for (size_t len = 0; len < sizeof plain; len++) CHECK_STATUS(DATA, read_plain(plain, len, &w));
}

TEST(thrift_fields_of_unexpected_types_are_rejected)
{
    struct fields w;
    const unsigned char string_as_number[] = {0x18, 1, 'x', 0}, unknown[] = {0x9E, 0},
                        many[] = {0x69, 0xF5, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0};
    CHECK_STATUS(DATA, read_plain(string_as_number, sizeof string_as_number, &w));
    CHECK_MESSAGE("field 1 has unexpected type 8");
    CHECK_STATUS(DATA, read_plain(unknown, sizeof unknown, &w));
    CHECK_MESSAGE("type 14");
    CHECK_STATUS(DATA, read_plain(many, sizeof many, &w));
    CHECK_MESSAGE("a list");
}

TEST(thrift_field_ids_have_16_bits)
{
    struct fields w;
    /* field 32767, then 32768; and field 2^63 - 1, then the next one */
    const unsigned char next[] = {0x01, 0xFE, 0xFF, 0x03, 0x11, 0};
    const unsigned char large[] = {0x01, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                   0xFF, 0xFF, 0xFF, 0x01, 0x11, 0};
    CHECK_STATUS(OK, read_plain(next, sizeof next, &w));
    CHECK_STATUS(DATA, read_plain(large, sizeof large, &w));
    CHECK_MESSAGE("field ID 9223372036854775807");
}

TEST(thrift_nesting_is_bounded)
{
    unsigned char deep[1000];
    struct fields w;
    memset(deep, 0x9C, sizeof deep); /* each struct has a field that is a struct */
    CHECK_STATUS(DATA, read_plain(deep, sizeof deep, &w));
    CHECK_MESSAGE("too deeply");
}
