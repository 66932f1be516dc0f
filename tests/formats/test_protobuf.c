// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/protobuf.h"

/* protoc --encode of the message { 1: 150, 2: "testing", 3: { 1: 150 } } writes these bytes. */
TEST(protobuf_writes_the_wire_format)
{
    static const char want[] = "\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01";
    struct text t = {0};
    protobuf_add_int(&t, 1, 150);
    protobuf_add_string(&t, 2, "testing");
    size_t inner = protobuf_begin(&t, 3);
    protobuf_add_int(&t, 1, 150);
    protobuf_end(&t, inner);
    CHECK(t.len == sizeof want - 1 && !memcmp(t.data, want, t.len));
    text_release(&t);
}

TEST(protobuf_lengths_of_long_messages_take_several_bytes)
{
    struct text t = {0};
    char long_string[40001];
    memset(long_string, 'x', 40000), long_string[40000] = 0;
    size_t outer = protobuf_begin(&t, 1), inner = protobuf_begin(&t, 20);
    protobuf_add_string(&t, 16, long_string);
    protobuf_end(&t, inner);
    protobuf_end(&t, outer);
    struct protobuf_reader all = {t.data, t.data + t.len}, a, b, c;
    CHECK(protobuf_find(all, 1, &a) && protobuf_find(a, 20, &b) && protobuf_find(b, 16, &c));
    CHECK(c.end - c.at == 40000 && c.end == t.data + t.len && *c.at == 'x');
    text_release(&t);
}

TEST(protobuf_reads_every_wire_type)
{
    static const char bytes[] = "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                                "\x11\x01\x02\x03\x04\x05\x06\x07\x08"
                                "\x1d\x01\x02\x03\x04"
                                "\x22\x00";
    struct protobuf_reader r = {bytes, bytes + sizeof bytes - 1};
    struct protobuf_field f;
    CHECK(protobuf_next(&r, &f) && f.number == 1 && f.value == UINT64_MAX && !f.bytes);
    CHECK(protobuf_next(&r, &f) && f.number == 2 && f.value == 0x0807060504030201);
    CHECK(protobuf_next(&r, &f) && f.number == 3 && f.value == 0x04030201);
    CHECK(protobuf_next(&r, &f) && f.number == 4 && f.bytes && f.len == 0);
    CHECK(!protobuf_next(&r, &f));
}

TEST(protobuf_rejects_what_is_not_a_field)
{
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {{"\x08", 1},     {"\x08\x80", 2},
               {"\x00\x01", 2}, {"\x12\x02x", 3},
               {"\x0b", 1},     {"\x11\x01\x02", 3},
               {"\x1d\x01", 2}, {"\x12\xff\xff\xff\xff\x0f", 6},
               {"\x0f\x01", 2}, {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct protobuf_reader r = {bad[i].bytes, bad[i].bytes + bad[i].len};
        struct protobuf_field f;
        CHECK(!protobuf_next(&r, &f));
    }
}
