// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/arrow.h"

/* What rows hold is in tests/data/test_table.c; files are of tests/oracle/parquet.py. */
static const char *file(const char *name) { return test_path("tests/oracle/data/arrow", name); }

static enum status add_entry(void *context, const struct parquet_entry *e)
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
    CHECK_STATUS(OK, arrow_open(&a, file(name), column));
    for (uint64_t row = 0; row < a.num_rows; row++) {
        CHECK_STATUS(OK, arrow_row(&a, row, add_entry, &out));
        text_adds(&out, "|");
    }
    if (strcmp(out.data, want) != 0) fail_msg("%s of %s: %s", column, name, out.data);
    arrow_close(&a);
    text_release(&out);
}

TEST(entries_of_arrow_have_the_levels_of_their_lists)
{
    const char *counts = "01 22 23 14 25 2255 |0- |0- |09 |01 22 13 |";
    check_rows("stream.arrow", "spike_counts", counts);
    check_rows("large.arrow", "spike_counts[][]", counts);
    check_rows("stream.arrow", "files[].text", "0a 1- 1b |0- |0- |0- |0c |");
    check_rows("stream.arrow", "number", "01 |02 |03 |04 |05 |");
    check_rows("large.arrow", "input_ids", "05 16 1- 17 |0- |0- |00 |02147483648 |");
}

TEST(batches_cut_out_of_others_begin_where_their_offsets_say)
{
    check_rows("file.arrow", "text", "0- |0 |0f\xC3\xBCr |0last |");
    check_rows("file.arrow", "spike_counts", "0- |0- |09 |01 22 13 |");
    check_rows("file.arrow", "input_ids", "0- |0- |00 |02147483648 |");
}

TEST(what_is_not_read_is_said)
{
    struct arrow a;
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), "words"));
    CHECK_MESSAGE("there are number, text, files, input_ids, spike_counts, not_utf8");
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), "files"));
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), ""));
    CHECK_STATUS(UNSUPPORTED, arrow_open(&a, file("packed.arrow"), "text"));
    CHECK_MESSAGE("compressed");
    struct text out = {0};
    CHECK_STATUS(OK, arrow_open(&a, file("coded.arrow"), "text"));
    CHECK_STATUS(UNSUPPORTED, arrow_row(&a, 0, add_entry, &out));
    arrow_close(&a);
    check_rows("coded.arrow", "input_ids", "05 16 1- 17 |0- |0- |00 |02147483648 |");
}

/* All rows of a column of these bytes, in memory of their own. */
static enum status read_all(const void *bytes, size_t len, const char *column)
{
    struct arrow a = {.path = heap_string("bytes", 5)};
    struct text out = {0};
    unsigned char *copy = malloc(len + !len);
    memcpy(copy, bytes, len);
    enum status st = arrow_parse(&a, copy, len, column);
    for (uint64_t row = 0; !st && row < a.num_rows && row < 100; row++)
        st = arrow_row(&a, row, add_entry, &out);
    arrow_close(&a);
    free(copy);
    text_release(&out);
    return st;
}

TEST(files_cut_off_anywhere_are_errors)
{
    static const char *const names[] = {"stream.arrow", "file.arrow"};
    for (int i = 0; i < 2; i++) {
        struct text bytes = {0};
        CHECK_STATUS(OK, file_read(file(names[i]), 1 << 20, &bytes));
        CHECK_STATUS(OK, read_all(bytes.data, bytes.len, "files[].text"));
        for (size_t len = 0; len < bytes.len; len++)
            CHECK_STATUS(DATA, read_all(bytes.data, len, "files[].text"));
        text_release(&bytes);
    }
}

TEST(changed_bytes_are_rows_or_an_error_and_never_a_crash)
{
    static const char *const columns[] = {"text", "spike_counts", "files[].text"};
    struct text bytes = {0};
    int refused = 0;
    CHECK_STATUS(OK, file_read(file("stream.arrow"), 1 << 20, &bytes));
    for (int c = 0; c < 3; c++)
        for (size_t at = 0; at < bytes.len; at++) {
            char kept = bytes.data[at];
            bytes.data[at] = (char)(kept ^ (at % 2 ? 0x7F : 0x84));
            refused += read_all(bytes.data, bytes.len, columns[c]) != STATUS_OK;
            bytes.data[at] = kept;
        }
    CHECK(refused > 500);
    text_release(&bytes);
}
