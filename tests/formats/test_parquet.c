// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/parquet.h"

static const char *file(const char *name)
{
    char whole[100];
    snprintf(whole, sizeof whole, "%s.parquet", name);
    return test_path("tests/oracle/data/parquet", whole);
}

static void check_finds(const char *name, const char *column, size_t want)
{
    struct parquet p;
    size_t leaf;
    CHECK_STATUS(OK, parquet_open(&p, file(name)));
    CHECK_STATUS(OK, parquet_find(&p, column, &leaf));
    if (leaf != want) fail_msg("%s: %zu, not %zu", column, leaf, want);
    parquet_close(&p);
}

TEST(parquet_finds_columns_by_the_paths_users_write)
{
    check_finds("documents", "text", 1);
    check_finds("documents", "files[].text", 2);
    check_finds("documents", "files.text", 2);
    check_finds("documents", "files.list.element.text", 2);
    check_finds("documents", "spike_counts", 4);
    check_finds("documents", "spike_counts[][]", 4);
    check_finds("polars-snappy", "files[].size", 9);
    check_finds("duckdb-snappy-V1", "files[].text", 8);
}

static void check_absent(const char *name, const char *column)
{
    struct parquet p;
    size_t leaf;
    CHECK_STATUS(OK, parquet_open(&p, file(name)));
    CHECK_STATUS(CONFIG, parquet_find(&p, column, &leaf));
    CHECK_MESSAGE("no column");
    CHECK_MESSAGE("files.list.element.text");
    parquet_close(&p);
}

TEST(an_unknown_parquet_column_is_an_error_that_lists_the_columns)
{
    check_absent("documents", "Text");
    check_absent("documents", "tex");
    check_absent("documents", "");
    check_absent("documents", "list");
    check_absent("documents", "files[].name");
    check_absent("documents", "text.list");
    check_absent("documents", "files"); /* a struct, although it has only one field */
    check_absent("pyarrow-mixed", "files");
}

TEST(parquet_footer_yields_columns_and_row_groups)
{
    struct parquet p;
    CHECK_STATUS(OK, parquet_open(&p, file("documents")));
    CHECK(p.num_rows == 5 && p.num_groups == 2 && p.num_leaves == 6);
    CHECK(p.groups[1].first_row == 3 && p.groups[1].num_rows == 2);
    CHECK(p.leaves[1].type == PARQUET_BYTES && p.leaves[1].max_def == 1 && !p.leaves[1].max_rep);
    CHECK(p.leaves[2].max_def == 4 && p.leaves[2].max_rep == 1);
    CHECK(p.leaves[3].type == PARQUET_I64 && !p.leaves[3].is_u8);
    CHECK(p.leaves[4].is_u8 && p.leaves[4].max_def == 5 && p.leaves[4].max_rep == 2);
    CHECK(p.groups[0].chunks[0].codec == CODEC_SNAPPY && p.groups[0].chunks[4].num_values == 8);
    parquet_close(&p);
}

/* Parses a heap copy, so that ASan detects reads past the end. */
static enum status parse(const void *bytes, size_t len)
{
    struct parquet p = {.path = heap_string("cut", 3)};
    unsigned char *copy = malloc(len + !len);
    memcpy(copy, bytes, len);
    enum status st = parquet_parse(&p, copy, len);
    parquet_close(&p);
    free(copy);
    return st;
}

TEST(truncated_parquet_files_are_rejected)
{
    struct text bytes = {0};
    CHECK_STATUS(OK, file_read(file("binary"), 1 << 20, &bytes));
    CHECK_STATUS(OK, parse(bytes.data, bytes.len));
    for (size_t len = 0; len < bytes.len; len++) CHECK_STATUS(DATA, parse(bytes.data, len));
    text_release(&bytes);
}

TEST(corrupt_parquet_footers_never_crash_the_reader)
{
    struct text bytes = {0};
    CHECK_STATUS(OK, file_read(file("binary"), 1 << 20, &bytes));
    int rejected = 0;
    for (size_t at = bytes.len - 1; at > 100; at--) {
        char kept = bytes.data[at];
        bytes.data[at] = (char)(kept ^ 0x7F);
        rejected += parse(bytes.data, bytes.len) != STATUS_OK;
        bytes.data[at] = kept;
    }
    CHECK(rejected > 60);
    memcpy(bytes.data + bytes.len - 4, "PARE", 4);
    CHECK_STATUS(UNSUPPORTED, parse(bytes.data, bytes.len));
    CHECK_MESSAGE("encrypted");
    text_release(&bytes);
}
