// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/parquet_values.h"

/* tests/oracle/parquet.c decodes every encoding; here we test the errors. */
enum {
    PLAIN,
    DICTIONARY = 2,
    RLE,
    DELTA = 5,
    DELTA_LENGTH,
    DELTA_BYTE_ARRAY,
    RLE_DICTIONARY,
    BYTE_STREAM_SPLIT
};

static enum status read_values(enum parquet_type type, int encoding, const void *bytes, size_t len,
                               size_t count)
{
    struct parquet_leaf leaf = {.type = type, .type_bytes = 3};
    struct byte_span words[] = {{(const unsigned char *)"a", 1}, {NULL, 0}};
    int64_t numbers[] = {7, 8};
    struct parquet_values v = {0}, dictionary = {words, numbers, 2, 2, {0}};
    unsigned char *copy = malloc(len + !len);
    memcpy(copy, bytes, len);
    const struct parquet_encoded in = {
        &leaf, encoding, {copy, copy + len, "page"}, count, &dictionary};
    enum status st = parquet_values_read(&v, &in);
    parquet_values_release(&v);
    free(copy);
    return st;
}

static void check_needs_all(enum parquet_type type, int encoding, const void *bytes, size_t len,
                            size_t count)
{
    CHECK_STATUS(OK, read_values(type, encoding, bytes, len, count));
    for (size_t n = 0; n < len; n++)
        CHECK_STATUS(DATA, read_values(type, encoding, bytes, n, count));
}

TEST(truncated_values_are_rejected)
{
    const unsigned char strings[] = {1, 0, 0, 0, 'x', 0, 0, 0, 0}, runs[] = {2, 0, 0, 0, 20, 1},
                        indices[] = {1, 3, 2}, lengths[] = {0x80, 1, 4, 2, 2, 1, 0, 0, 0, 0, 'a'};
    check_needs_all(PARQUET_BYTES, PLAIN, strings, sizeof strings, 2);
    check_needs_all(PARQUET_I32, PLAIN, "12345678", 8, 2);
    check_needs_all(PARQUET_I64, PLAIN, "1234567887654321", 16, 2);
    check_needs_all(PARQUET_I96, PLAIN, "123456788765", 12, 1);
    check_needs_all(PARQUET_FIXED, PLAIN, "abcdef", 6, 2);
    check_needs_all(PARQUET_FIXED, BYTE_STREAM_SPLIT, "abcdef", 6, 2);
    check_needs_all(PARQUET_F32, BYTE_STREAM_SPLIT, "abcdefgh", 8, 2);
    check_needs_all(PARQUET_BOOL, PLAIN, "ab", 2, 9);
    check_needs_all(PARQUET_BOOL, RLE, runs, sizeof runs, 10);
    check_needs_all(PARQUET_BYTES, RLE_DICTIONARY, indices, sizeof indices, 8);
    check_needs_all(PARQUET_I32, DICTIONARY, indices, sizeof indices, 8);
    check_needs_all(PARQUET_BYTES, DELTA_LENGTH, lengths, sizeof lengths, 2);
}

TEST(dictionary_indices_out_of_range_are_rejected)
{
    const unsigned char third[] = {2, 2, 2};
    CHECK_STATUS(DATA, read_values(PARQUET_BYTES, RLE_DICTIONARY, third, sizeof third, 1));
    CHECK_MESSAGE("dictionary index 2 is out of range: the dictionary has 2");
    struct parquet_leaf leaf = {.type = PARQUET_BYTES};
    struct parquet_values v = {0};
    const struct parquet_encoded in = {
        &leaf, RLE_DICTIONARY, {third, third + sizeof third, "page"}, 1, NULL};
    CHECK_STATUS(DATA, parquet_values_read(&v, &in));
    CHECK_MESSAGE("without a dictionary page");
    parquet_values_release(&v);
}

TEST(a_shared_prefix_longer_than_the_previous_string_is_rejected)
{
    const unsigned char bytes[] = {0x80, 1, 4, 1, 2, /* prefix 1 of the first string */
                                   0x80, 1, 4, 1, 2, 'a'};
    CHECK_STATUS(DATA, read_values(PARQUET_BYTES, DELTA_BYTE_ARRAY, bytes, sizeof bytes, 1));
    CHECK_MESSAGE("prefix of 1 bytes, but the previous string has 0");
}

TEST(encodings_that_do_not_fit_the_type_are_unsupported)
{
    CHECK_STATUS(UNSUPPORTED, read_values(PARQUET_BYTES, DELTA, "", 0, 0));
    CHECK_STATUS(UNSUPPORTED, read_values(PARQUET_BYTES, BYTE_STREAM_SPLIT, "", 0, 0));
    CHECK_STATUS(UNSUPPORTED, read_values(PARQUET_I32, RLE, "", 0, 0));
    CHECK_STATUS(UNSUPPORTED, read_values(PARQUET_I32, 4, "", 0, 0));
    CHECK_MESSAGE("encoding 4");
}

TEST(impossible_value_counts_are_rejected_before_allocation)
{
    CHECK_STATUS(UNSUPPORTED, read_values(PARQUET_I64, RLE_DICTIONARY, "", 0, (size_t)1 << 40));
    CHECK_STATUS(DATA, read_values(PARQUET_I64, PLAIN, "", 0, 1 << 25));
}
