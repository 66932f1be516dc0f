// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/arrow_reader.h"

/* tests/oracle/parquet.py wrote the files; tests/data/test_table.c checks their contents, too. */
static const char *file(const char *name) { return test_path("tests/oracle/data/arrow", name); }

static enum status add_entry(void *context, const struct column_entry *e)
{
    struct text *out = context;
    if (!e->has_value)
        text_addf(out, "%d- ", e->rep);
    else if (e->bytes.data)
        text_addf(out, "%d%.*s ", e->rep, (int)e->bytes.len, (const char *)e->bytes.data);
    else
        text_addf(out, "%d%lld ", e->rep, (long long)e->number);
    return STATUS_OK;
}

static void check_rows(const char *name, const char *column, const char *want)
{
    struct arrow a;
    struct text out = {0};
    struct arrow_reader r;
    CHECK_STATUS(OK, arrow_open(&a, file(name), column));
    arrow_reader_init(&r, &a);
    for (uint64_t row = 0; row < a.num_rows; row++) {
        CHECK_STATUS(OK, arrow_reader_visit_row(&r, row, add_entry, &out));
        text_adds(&out, "|");
    }
    if (strcmp(out.data, want) != 0) fail_msg("%s of %s: %s", column, name, out.data);
    arrow_reader_release(&r);
    arrow_close(&a);
    text_release(&out);
}

TEST(arrow_entries_have_the_repetition_levels_of_their_lists)
{
    const char *counts = "01 22 23 14 25 2255 |0- |0- |09 |01 22 13 |";
    check_rows("stream.arrow", "spike_counts", counts);
    check_rows("large.arrow", "spike_counts[][]", counts);
    check_rows("stream.arrow", "files[].text", "0a 1- 1b |0- |0- |0- |0c |");
    check_rows("stream.arrow", "number", "01 |02 |03 |04 |05 |");
    check_rows("large.arrow", "input_ids", "05 16 1- 17 |0- |0- |00 |02147483648 |");
}

TEST(sliced_batches_honor_their_first_offset)
{
    check_rows("file.arrow", "text", "0- |0 |0f\xC3\xBCr |0last |");
    check_rows("file.arrow", "spike_counts", "0- |0- |09 |01 22 13 |");
    check_rows("file.arrow", "input_ids", "0- |0- |00 |02147483648 |");
}

TEST(compressed_batches_read_like_uncompressed_ones)
{
    static const char *const names[] = {"lz4.arrow", "packed.arrow"};
    for (int i = 0; i < 2; i++) {
        check_rows(names[i], "text", "0one |0- |0 |0f\xC3\xBCr |0last |");
        check_rows(names[i], "spike_counts", "01 22 23 14 25 2255 |0- |0- |09 |01 22 13 |");
        check_rows(names[i], "files[].text", "0a 1- 1b |0- |0- |0- |0c |");
        check_rows(names[i], "input_ids", "05 16 1- 17 |0- |0- |00 |02147483648 |");
    }
}

TEST(dictionary_encoded_columns_read_like_plain_ones)
{
    check_rows("coded.arrow", "text", "0one |0- |0 |0f\xC3\xBCr |0last |");
    check_rows("packed_coded.arrow", "text", "0one |0- |0 |0f\xC3\xBCr |0last |");
    check_rows("coded.arrow", "input_ids", "05 16 1- 17 |0- |0- |00 |02147483648 |");
    check_rows("packed_coded.arrow", "number", "01 |02 |03 |04 |05 |");
}

TEST(dictionary_batches_extend_or_replace_the_dictionary)
{
    const char *want = "0one |0- |0two |0two |0three |0four |0one |";
    check_rows("deltas.arrow", "text", want);
    check_rows("replaced.arrow", "text", want);
}

TEST(views_are_read_from_inline_and_variadic_bytes)
{
    const char *want = "0a text that is too long to stand in its view |0- |0 |0short |"
                       "0another one of more than twelve bytes |";
    static const char *const names[] = {"views.arrow", "packed_views.arrow"};
    for (int i = 0; i < 2; i++) {
        check_rows(names[i], "bytes", want);
        check_rows(names[i], "text", want);
        check_rows(names[i], "files[].text",
                   "0a text that is too long to stand in its view 1b |0- 1b |0 1b |0short 1b |"
                   "0another one of more than twelve bytes 1b |");
        check_rows(names[i], "number", "01 |02 |03 |04 |05 |");
    }
}

TEST(fixed_size_lists_and_list_views_read_as_lists)
{
    static const char *const names[] = {"views.arrow", "packed_views.arrow"};
    for (int i = 0; i < 2; i++) {
        check_rows(names[i], "input_ids", "01 12 13 |0- |04 15 16 |07 1- 19 |00 10 10 |");
        check_rows(names[i], "ids_view", "01 12 |0- |0- |03 |04 15 16 |");
        check_rows(names[i], "large_view", "01 12 |0- |0- |03 |04 15 16 |");
    }
}

/* Reads all rows of a column from a heap copy, so that ASan detects reads past the end. */
static enum status read_all(const void *bytes, size_t len, const char *column)
{
    struct arrow a = {.path = heap_string("bytes", 5)};
    struct arrow_reader r;
    struct text out = {0};
    unsigned char *copy = malloc(len + !len);
    memcpy(copy, bytes, len);
    enum status st = arrow_parse(&a, copy, len, column);
    arrow_reader_init(&r, &a);
    for (uint64_t row = 0; !st && row < a.num_rows && row < 100; row++)
        st = arrow_reader_visit_row(&r, row, add_entry, &out);
    arrow_reader_release(&r);
    arrow_close(&a);
    free(copy);
    text_release(&out);
    return st;
}

static enum status count_entry(void *context, const struct column_entry *e)
{
    (void)e;
    ++*(uint64_t *)context;
    return STATUS_OK;
}

/* Each list of each level is all lists of the next, so that a row has ITEMS^LEVELS numbers. */
TEST(list_views_that_multiply_items_are_rejected)
{
    enum { LEVELS = 15, ITEMS = 8 };
    struct arrow a = {.path = "many.arrow", .num_levels = LEVELS + 1, .num_lists = LEVELS};
    uint32_t offsets[ITEMS] = {0}, sizes[ITEMS];
    unsigned char numbers[ITEMS] = {0};
    struct arrow_batch *b = heap(sizeof *b + (LEVELS + 1) * sizeof *b->arrays);
    struct arrow_reader r;
    uint64_t count = 0;
    a.is_integer = true, a.batches = &b, a.num_batches = 1, a.num_rows = b->num_rows = ITEMS;
    for (int i = 0; i < ITEMS; i++) sizes[i] = ITEMS;
    for (int level = 0; level < LEVELS; level++) {
        a.levels[level].type = ARROW_LIST_VIEW;
        b->arrays[level] = (struct arrow_array){.length = ITEMS,
                                                .offsets = {(void *)offsets, sizeof offsets},
                                                .data = {(void *)sizes, sizeof sizes}};
    }
    a.levels[LEVELS] = (struct arrow_level){.type = ARROW_INT, .bits = 8};
    b->arrays[LEVELS] = (struct arrow_array){.length = ITEMS, .data = {numbers, sizeof numbers}};
    b->codec = CODEC_NONE;
    arrow_reader_init(&r, &a);
    CHECK_STATUS(DATA, arrow_reader_visit_row(&r, 0, count_entry, &count));
    CHECK_MESSAGE("many.arrow: the lists of a row repeat too many items");
    CHECK(count > ITEMS * ITEMS && count < 1000000);
    arrow_reader_release(&r);
    free(b);
}

TEST(truncated_arrow_files_are_rejected)
{
    static const char *const names[] = {"stream.arrow", "file.arrow",         "lz4.arrow",
                                        "packed.arrow", "packed_views.arrow", "packed_coded.arrow"};
    for (int i = 0; i < 6; i++) {
        struct text bytes = {0};
        const char *column = i < 4 ? "files[].text" : "text";
        CHECK_STATUS(OK, file_read(file(names[i]), 1 << 20, &bytes));
        CHECK_STATUS(OK, read_all(bytes.data, bytes.len, column));
        for (size_t len = 0; len < bytes.len; len++)
            CHECK_STATUS(DATA, read_all(bytes.data, len, column));
        text_release(&bytes);
    }
}

/* The number of corrupted bytes that cause an error. */
static int count_rejections(const char *name, const char *column)
{
    struct text bytes = {0};
    int rejected = 0;
    CHECK_STATUS(OK, file_read(file(name), 1 << 20, &bytes));
    for (size_t at = 0; at < bytes.len; at++) {
        char kept = bytes.data[at];
        bytes.data[at] = (char)(kept ^ (at % 2 ? 0x7F : 0x84));
        rejected += read_all(bytes.data, bytes.len, column) != STATUS_OK;
        bytes.data[at] = kept;
    }
    text_release(&bytes);
    return rejected;
}

TEST(corrupt_arrow_files_never_crash_the_reader)
{
    static const char *const files[][2] = {
        {"stream.arrow", "text"},         {"stream.arrow", "spike_counts"},
        {"deltas.arrow", "text"},         {"lz4.arrow", "text"},
        {"packed.arrow", "spike_counts"}, {"views.arrow", "text"},
        {"views.arrow", "input_ids"},     {"views.arrow", "large_view"},
        {"packed_coded.arrow", "text"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        CHECK(count_rejections(files[i][0], files[i][1]) > 100);
}
