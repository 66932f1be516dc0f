// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "data/table.h"

/* The rows come from documents() of tests/oracle/parquet.py. */
static const char *const paths[] = {
    "tests/oracle/data/parquet/documents.parquet", "tests/oracle/data/arrow/stream.arrow",
    "tests/oracle/data/arrow/large.arrow",         "tests/oracle/data/arrow/packed.arrow",
    "tests/oracle/data/arrow/packed_coded.arrow",  "tests/oracle/data/arrow/polars.arrow"};
enum { PATHS = sizeof paths / sizeof *paths };

static void check_texts(const char *path, const char *column, enum table_kind kind,
                        const char *const want[5])
{
    struct table r;
    struct table_reader *reader;
    struct text t = {0};
    CHECK_STATUS(OK, table_open(&r, path, column));
    CHECK(r.kind == kind && !table_holds_ids(&r));
    table_reader_open(&reader, &r);
    for (uint64_t i = 0; i < 10; i++) {
        uint64_t row = i < 5 ? i : 9 - i;
        CHECK_STATUS(OK, table_read(reader, row, &t));
        if (t.len != strlen(want[row]) || (t.len && memcmp(t.data, want[row], t.len) != 0))
            fail_msg("row %llu: %.*s", (unsigned long long)row, (int)t.len, t.data);
    }
    CHECK(table_reader_bytes(reader) > 0 || r.is_arrow);
    table_reader_close(reader);
    table_close(&r);
    text_release(&t);
}

TEST(table_reads_a_text_column)
{
    const char *const want[] = {"one", "", "", "f\xC3\xBCr", "last"};
    for (int i = 0; i < PATHS; i++) check_texts(paths[i], "text", TABLE_TEXT, want);
}

TEST(table_joins_the_texts_of_a_list)
{
    const char *const want[] = {"\n\na\n\nb", "", "", "", "\n\nc"};
    for (int i = 0; i < PATHS; i++) check_texts(paths[i], "files[].text", TABLE_JOINED, want);
}

static enum status read_ids(const char *path, const char *column, uint64_t row, const int32_t *want,
                            size_t count)
{
    struct table r;
    struct table_reader *reader;
    struct text t = {0};
    CHECK_STATUS(OK, table_open(&r, path, column));
    CHECK(table_holds_ids(&r));
    table_reader_open(&reader, &r);
    enum status st = table_read(reader, row, &t);
    if (!st) CHECK(t.len == count * 4 && (!count || !memcmp(t.data, want, t.len)));
    table_reader_close(reader);
    table_close(&r);
    text_release(&t);
    return st;
}

static void check_ids(const char *path)
{
    CHECK_STATUS(RECORD, read_ids(path, "input_ids", 0, NULL, 0));
    CHECK_MESSAGE("row 0: its list of token IDs has a null");
    CHECK_STATUS(OK, read_ids(path, "input_ids", 1, NULL, 0));
    CHECK_STATUS(OK, read_ids(path, "input_ids", 2, NULL, 0));
    CHECK_STATUS(OK, read_ids(path, "input_ids", 3, (const int32_t[]){0}, 1));
    CHECK_STATUS(RECORD, read_ids(path, "input_ids", 4, NULL, 0));
    CHECK_MESSAGE("row 4: token ID 2147483648 is out of range");
}

TEST(table_reads_lists_of_integers_as_ids)
{
    for (int i = 0; i < PATHS; i++) check_ids(paths[i]);
}

static void check_counts(const char *path)
{
    const int32_t want[] = {255, 1, 4, 255, 2, 5, 255, 3, 255};
    CHECK_STATUS(OK, read_ids(path, "spike_counts", 0, want, 9));
    CHECK_STATUS(OK, read_ids(path, "spike_counts", 1, NULL, 0));
    CHECK_STATUS(OK, read_ids(path, "spike_counts", 2, NULL, 0));
    CHECK_STATUS(OK, read_ids(path, "spike_counts", 3, (const int32_t[]){255, 9}, 2));
    CHECK_STATUS(RECORD, read_ids(path, "spike_counts", 4, NULL, 0));
    CHECK_MESSAGE("row 4: its lists differ in length");
}

TEST(table_reads_spike_counts_bin_by_bin_after_a_separator)
{
    for (int i = 0; i < PATHS; i++) check_counts(paths[i]);
}

TEST(table_reports_the_neurons_of_a_row)
{
    for (int i = 0; i < PATHS; i++) {
        static const size_t want[] = {2, 0, 0, 1};
        struct table r;
        struct table_reader *reader;
        struct text t = {0};
        CHECK_STATUS(OK, table_open(&r, paths[i], "spike_counts"));
        table_reader_open(&reader, &r);
        for (uint64_t row = 0; row < 4; row++) {
            CHECK_STATUS(OK, table_read(reader, row, &t));
            if (t.len) CHECK(table_reader_neurons(reader) == want[row]);
        }
        table_reader_close(reader);
        table_close(&r);
        text_release(&t);
    }
}

TEST(table_rejects_columns_of_other_types)
{
    struct table r;
    for (int i = 0; i < PATHS; i++) {
        const char *path = paths[i];
        CHECK_STATUS(CONFIG, table_open(&r, path, "number"));
        CHECK_MESSAGE("expected text");
        CHECK_MESSAGE("the columns are number, text, files");
        CHECK_STATUS(CONFIG, table_open(&r, path, "words"));
        CHECK_MESSAGE("number, text, files");
    }
    CHECK_STATUS(MISSING, table_open(&r, "absent.parquet", "text"));
}

TEST(table_estimates_the_mean_bytes_of_a_row)
{
    struct table t;
    CHECK_STATUS(OK, table_open(&t, "tests/data/spikes/rodent/train-00000-of-00001.parquet",
                                "spike_counts"));
    CHECK(table_mean_bytes(&t) == 4 * 4080 / 12); /* 4800 IDs, 720 of them separators */
    table_close(&t);
    CHECK_STATUS(OK, table_open(&t, paths[0], "text"));
    CHECK(table_mean_bytes(&t) == 0);
    table_close(&t);
}

/* tests/oracle/parquet_edges.py wrote these. */
#define EDGE(name) "tests/formats/data/edge-" name

static void check_refused(const char *path, const char *column, const char *why)
{
    struct table t;
    enum status st = table_open(&t, path, column);
    CHECK(st == STATUS_CONFIG || st == STATUS_UNSUPPORTED);
    CHECK_MESSAGE(why);
}

static void check_first_text(const char *path, const char *column, const char *want)
{
    struct table t;
    struct table_reader *reader;
    struct text row = {0};
    CHECK_STATUS(OK, table_open(&t, path, column));
    table_reader_open(&reader, &t);
    CHECK_STATUS(OK, table_read(reader, 0, &row));
    CHECK(row.len == strlen(want) && !memcmp(row.data, want, row.len));
    table_reader_close(reader);
    table_close(&t);
    text_release(&row);
}

TEST(table_reads_compressed_pages_that_are_marked_uncompressed)
{
    check_first_text(EDGE("v2-flag.parquet"), "text", "the same line again and again");
}

TEST(table_reads_files_with_empty_row_groups)
{
    static const char *const want[] = {"one", "two", "", "four"};
    struct table t;
    struct text row = {0};
    CHECK_STATUS(OK, table_open(&t, EDGE("empty-groups.parquet"), "text"));
    CHECK(t.num_rows == 4 && t.file.num_groups == 6);
    for (int order = 0; order < 2; order++) { /* sequential, and backwards */
        struct table_reader *reader;
        table_reader_open(&reader, &t);
        for (uint64_t i = 0; i < 4; i++) {
            uint64_t at = order ? 3 - i : i, bytes = 1;
            CHECK_STATUS(OK, table_read(reader, at, &row));
            CHECK(row.len == strlen(want[at]) &&
                  (!row.len || !memcmp(row.data, want[at], row.len)));
            if (!order) CHECK(table_range_end(reader, at, &bytes) > at);
        }
        table_reader_close(reader);
    }
    table_close(&t);
    static const char *const none[] = {EDGE("no-rows.parquet"), EDGE("no-groups.parquet"),
                                       EDGE("no-rows.arrow")};
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(OK, table_open(&t, none[i], "text"));
        CHECK(!t.num_rows);
        table_close(&t);
    }
    text_release(&row);
}

TEST(table_finds_columns_whose_names_have_dots)
{
    check_first_text(EDGE("dots.parquet"), "a.b", "dotted");
    check_first_text(EDGE("dots.parquet"), "a.c", "nested");
    check_first_text(EDGE("dots.parquet"), "x.y.z.t.u", "deep");
    check_first_text(EDGE("dots.arrow"), "a.b", "dotted");
    check_refused(EDGE("dots.parquet"), "a", "no column \"a\"");
    check_refused(EDGE("dots.parquet"), "x.y", "no column \"x.y\"");
    check_refused(EDGE("dots.arrow"), "a", "no column \"a\"");
}

TEST(table_reads_arrow_columns_behind_unions)
{
    static const char *const files[] = {EDGE("union.arrow"), EDGE("union-v4.arrow")};
    for (int i = 0; i < 2; i++) {
        check_first_text(files[i], "text", "one");
        check_first_text(files[i], "last", "three");
        check_refused(files[i], "dense", "column \"dense\" holds unions: expected text, ");
        check_refused(files[i], "other", "the columns are: sparse, text, dense, last");
    }
}

TEST(table_names_the_type_of_a_column_that_it_refuses)
{
    check_refused(EDGE("empty-groups.parquet"), "n",
                  "column \"n\" holds integers: expected text, ");
    check_refused("tests/oracle/data/parquet/pyarrow-plain-v1.parquet", "real",
                  "column \"real\" holds floating-point numbers: expected text, ");
}

TEST(table_refuses_two_columns_of_the_same_name)
{
    check_refused(EDGE("twice.parquet"), "text", "more than one column has the name \"text\"");
    check_refused(EDGE("twice.arrow"), "text", "more than one column has the name \"text\"");
    check_first_text(EDGE("twice.parquet"), "other", "three");
}

TEST(table_names_encryption)
{
    check_refused(EDGE("encrypted.parquet"), "text", "encrypted columns are not supported");
}

TEST(table_rejects_nulls_in_lists_of_ids)
{
    static const char *const files[] = {EDGE("null-ids.parquet"), EDGE("null-ids.arrow")};
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(OK, read_ids(files[i], "ids", 0, (const int32_t[]){1, 2}, 2));
        CHECK_STATUS(RECORD, read_ids(files[i], "ids", 1, NULL, 0));
        CHECK_MESSAGE("row 1: its list of token IDs has a null");
        CHECK_STATUS(OK, read_ids(files[i], "ids", 2, NULL, 0)); /* empty */
        CHECK_STATUS(OK, read_ids(files[i], "ids", 3, NULL, 0)); /* null instead of a list */
        CHECK_STATUS(OK, read_ids(files[i], "ids", 4, (const int32_t[]){4}, 1));
    }
}
