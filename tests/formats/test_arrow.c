// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/arrow.h"

/* tests/oracle/parquet.py wrote the files; tests/data/test_table.c checks their contents. */
static const char *file(const char *name) { return test_path("tests/oracle/data/arrow", name); }

TEST(arrow_ranges_end_within_their_batch)
{
    struct arrow a;
    static const char *const names[] = {"stream.arrow", "packed.arrow"};
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(OK, arrow_open(&a, file(names[i]), "text"));
        uint64_t few = 1, many = 1 << 20, rows = i ? 5 : 3;
        CHECK(arrow_range_end(&a, 0, &few) == 1 && few > 0);
        CHECK(arrow_range_end(&a, 0, &many) == rows && many >= 16 && many < 100);
        many = 1 << 20;
        CHECK(arrow_range_end(&a, 4, &many) == 5);
        arrow_close(&a);
    }
}

TEST(compressed_buffers_begin_with_their_length_or_minus_one)
{
    struct arrow a = {.path = heap_string("x", 1)};
    struct text storage = {0};
    const unsigned char plain[] = {255, 255, 255, 255, 255, 255, 255, 255, 'a', 'b'};
    const unsigned char huge[] = {0, 0, 0, 0, 1, 0, 0, 0, 'a', 'b'};
    struct byte_span b = {plain, sizeof plain};
    CHECK_STATUS(OK, arrow_decompress(&a, CODEC_ZSTD, &b, &storage));
    CHECK(b.data == plain + 8 && b.len == 2);
    b = (struct byte_span){huge, sizeof huge};
    CHECK_STATUS(UNSUPPORTED, arrow_decompress(&a, CODEC_ZSTD, &b, &storage));
    CHECK_MESSAGE("4294967296 bytes");
    b = (struct byte_span){huge, 5};
    CHECK_STATUS(DATA, arrow_decompress(&a, CODEC_ZSTD, &b, &storage));
    b = (struct byte_span){huge, 0};
    CHECK_STATUS(OK, arrow_decompress(&a, CODEC_ZSTD, &b, &storage));
    arrow_close(&a);
    text_release(&storage);
}
