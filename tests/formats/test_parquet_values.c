// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/parquet_values.h"

/* Every encoding is read in tests/oracle/parquet.c; here is what is refused. */
enum { PLAIN, DICTIONARY = 2, RUNS, DELTA = 5, DELTA_LENGTHS, DELTA_STRINGS, INDICES, SPLIT };

static enum status read_values(enum parquet_type type, int encoding, const void *bytes, size_t len,
                               size_t count)
{
    struct parquet_leaf leaf = {.type = type, .type_bytes = 3};
    struct parquet_bytes words[] = {{(const unsigned char *)"a", 1}, {NULL, 0}};
    int64_t numbers[] = {7, 8};
    struct parquet_values v = {0}, dictionary = {words, numbers, 2, 2, {0}};
    unsigned char *copy = malloc(len + !len);
    memcpy(copy, bytes, len);
    struct reader r = {copy, copy + len, "page"};
    enum status st = parquet_values_read(&v, &leaf, encoding, r, count, &dictionary);
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

TEST(values_cut_off_are_errors)
{
    const unsigned char strings[] = {1, 0, 0, 0, 'x', 0, 0, 0, 0}, runs[] = {2, 0, 0, 0, 20, 1},
                        indices[] = {1, 3, 2}, lengths[] = {0x80, 1, 4, 2, 2, 1, 0, 0, 0, 0, 'a'};
    check_needs_all(PARQUET_BYTES, PLAIN, strings, sizeof strings, 2);
    check_needs_all(PARQUET_I32, PLAIN, "12345678", 8, 2);
    check_needs_all(PARQUET_I64, PLAIN, "1234567887654321", 16, 2);
    check_needs_all(PARQUET_I96, PLAIN, "123456788765", 12, 1);
    check_needs_all(PARQUET_FIXED, PLAIN, "abcdef", 6, 2);
    check_needs_all(PARQUET_FIXED, SPLIT, "abcdef", 6, 2);
    check_needs_all(PARQUET_F32, SPLIT, "abcdefgh", 8, 2);
    check_needs_all(PARQUET_BOOL, PLAIN, "ab", 2, 9);
    check_needs_all(PARQUET_BOOL, RUNS, runs, sizeof runs, 10);
    check_needs_all(PARQUET_BYTES, INDICES, indices, sizeof indices, 8);
    check_needs_all(PARQUET_I32, DICTIONARY, indices, sizeof indices, 8);
    check_needs_all(PARQUET_BYTES, DELTA_LENGTHS, lengths, sizeof lengths, 2);
}

TEST(indices_beyond_the_dictionary_are_errors)
{
    const unsigned char third[] = {2, 2, 2};
    CHECK_STATUS(DATA, read_values(PARQUET_BYTES, INDICES, third, sizeof third, 1));
    CHECK_MESSAGE("value 2 of a dictionary of 2");
    struct parquet_leaf leaf = {.type = PARQUET_BYTES};
    struct parquet_values v = {0};
    struct reader r = {third, third + sizeof third, "page"};
    CHECK_STATUS(DATA, parquet_values_read(&v, &leaf, INDICES, r, 1, NULL));
    CHECK_MESSAGE("there is none");
    parquet_values_release(&v);
}

TEST(a_string_shares_no_more_than_the_one_before_has)
{
    const unsigned char bytes[] = {0x80, 1, 4, 1, 2, /* prefix 1 of the first string */
                                   0x80, 1, 4, 1, 2, 'a'};
    CHECK_STATUS(DATA, read_values(PARQUET_BYTES, DELTA_STRINGS, bytes, sizeof bytes, 1));
    CHECK_MESSAGE("shares 1 bytes with one of 0");
}

TEST(encodings_of_other_types_are_not_supported)
{
    CHECK_STATUS(UNSUPPORTED, read_values(PARQUET_BYTES, DELTA, "", 0, 0));
    CHECK_STATUS(UNSUPPORTED, read_values(PARQUET_BYTES, SPLIT, "", 0, 0));
    CHECK_STATUS(UNSUPPORTED, read_values(PARQUET_I32, RUNS, "", 0, 0));
    CHECK_STATUS(UNSUPPORTED, read_values(PARQUET_I32, 4, "", 0, 0));
    CHECK_MESSAGE("encoding 4");
}

TEST(more_values_than_a_page_may_hold_are_refused_before_memory_is_asked_for)
{
    CHECK_STATUS(UNSUPPORTED, read_values(PARQUET_I64, INDICES, "", 0, (size_t)1 << 40));
    CHECK_STATUS(DATA, read_values(PARQUET_I64, PLAIN, "", 0, 1 << 25));
}
