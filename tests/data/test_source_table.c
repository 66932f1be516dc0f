// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

#include "base/file.h"

static const char parquet[] = "tests/oracle/data/parquet/documents.parquet";

TEST(source_reads_the_non_empty_rows_of_parquet)
{
    source_rig_check(parquet, "<one>|<f\xC3\xBCr>|<last>|");
}

TEST(source_parts_of_parquet_keep_row_order)
{
    struct source_config c = source_rig_config("tests/oracle/data/parquet/pyarrow-*.parquet");
    struct source s = source_rig_open(&c);
    struct text whole = {0}, parts = {0};
    CHECK_STATUS(OK, source_rig_read_part(&s, 0, 1, &whole));
    for (uint64_t n = 0; n < 17; n++) CHECK_STATUS(OK, source_rig_read_part(&s, n, 17, &parts));
    CHECK(whole.len > 5000 && whole.len == parts.len && !memcmp(whole.data, parts.data, parts.len));
    text_release(&whole), text_release(&parts);
    source_close(&s);
}

TEST(source_reads_parquet_ids_without_tokenizer_and_checks_the_vocabulary)
{
    struct source_config c = {
        .path = "tests/formats/data/edge-null-ids.parquet", .column = "ids", .weight = 1};
    struct source s = source_rig_open(&c);
    struct source_reader reader = {0};
    struct source_tokens t = {.vocab_size = 8};
    struct source_document f = {0};
    struct token_list ids = {0};
    struct source_range cursor = {.end = 5, .num_parts = 1};
    bool none;
    CHECK(s.holds_ids && s.num_positions == 5);
    CHECK_STATUS(OK, source_find(&s, &reader, &cursor, &f, &none));
    CHECK(!none && f.len == 2 && cursor.position == 1);
    CHECK_STATUS(OK, source_read(&s, &f, &t, &ids));
    CHECK(ids.count == 2 && ids.ids[1] == 2);
    t.vocab_size = 2;
    CHECK_STATUS(RECORD, source_read(&s, &f, &t, &ids));
    CHECK_MESSAGE("row 0 has token ID 2");
    CHECK_STATUS(OK, source_find(&s, &reader, &cursor, &f, &none));
    CHECK(!none && f.at == 1 && f.is_bad); /* a null among the IDs */
    source_reader_trim(&reader);
    CHECK_STATUS(OK, source_find(&s, &reader, &cursor, &f, &none));
    CHECK(!none && f.at == 4 && f.len == 1 && cursor.position == 5);
    token_list_release(&ids);
    text_release(&f.text);
    source_reader_close(&reader);
    source_close(&s);
}

static void check_counts(struct source_config c, const int32_t *want, size_t count)
{
    struct source s = source_rig_open(&c);
    struct source_reader reader = {0};
    struct source_tokens t = {.vocab_size = 256};
    struct source_document f = {0};
    struct token_list ids = {0};
    struct source_range cursor = source_part(&s, 0, 1);
    bool none;
    CHECK(s.num_positions == 1);
    CHECK_STATUS(OK, source_find(&s, &reader, &cursor, &f, &none));
    CHECK(!none);
    CHECK_STATUS(OK, source_read(&s, &f, &t, &ids));
    CHECK(ids.count == count && !memcmp(ids.ids, want, count * sizeof *want));
    CHECK_STATUS(OK, source_find(&s, &reader, &cursor, &f, &none));
    CHECK(none);
    uint64_t bytes = 1;
    CHECK(source_range_end(&s, &reader, 0, &bytes) == 1);
    token_list_release(&ids);
    text_release(&f.text);
    source_reader_close(&reader);
    source_close(&s);
}

/* The IDs of five neurons come from gpt-neuro-arch's standardize_neuron_dim. */
TEST(source_reads_only_the_rows_and_neurons_that_are_requested)
{
    struct source_config c = {.path = parquet,
                              .column = "spike_counts",
                              .weight = 1,
                              .filter_column = "text",
                              .filter_value = "one"};
    static const int32_t one[] = {255, 1, 4, 255, 2, 5, 255, 3, 255};
    static const int32_t five[] = {255, 1, 4, 1, 4, 1, 255, 2, 5, 2, 5, 2, 255, 3, 255, 3, 255, 3};
    check_counts(c, one, 9);
    c.neurons = 5;
    check_counts(c, five, 18);
    c.filter_value = "f\xC3\xBCr", c.neurons = 0;
    check_counts(c, (const int32_t[]){255, 9}, 2);
    c.filter_value = "two";
    struct source s;
    CHECK_STATUS(DATA, source_open(&s, &c));
    CHECK_MESSAGE("the source is empty: no row has text = \"two\"");
    c.filter_column = "number";
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    c.filter_column = "input_ids";
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    CHECK_MESSAGE("filter_column = \"input_ids\": expected a column of text");
    c.path = rig_text(test_folder(), "a.txt", "abc\n");
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    CHECK_MESSAGE("filter_column requires .parquet or .arrow");
}

/* Replaces the row count of the first row group, 3, in the footer: zigzag varints of Thrift. */
static const char *claim_rows(uint64_t rows)
{
    static const char field[] = {0x16, 3 << 1}; /* the next field, an i64 */
    struct text file = {0}, out = {0};
    uint32_t len;
    CHECK_STATUS(
        OK, file_read(test_path("tests/oracle/data/parquet", "documents.parquet"), 1 << 20, &file));
    memcpy(&len, file.data + file.len - 8, sizeof len);
    const char *footer = file.data + file.len - 8 - len, *at = NULL, *next = footer;
    for (int i = 0; i < 7; i++, next = at + 1) /* the others are of its column chunks */
        CHECK((at = memmem(next, (size_t)(file.data + file.len - next), field, sizeof field)));
    text_add(&out, file.data, (size_t)(at + 1 - file.data));
    for (uint64_t left = rows << 1; left; left >>= 7)
        text_add(&out, &(char){(char)((left & 127) | (left > 127 ? 128 : 0))}, 1);
    size_t kept = (size_t)(file.data + file.len - 8 - (at + 2));
    text_add(&out, at + 2, kept);
    len = (uint32_t)(out.len - (size_t)(footer - file.data));
    text_add(&out, &len, sizeof len), text_adds(&out, "PAR1");
    const char *path = rig_bytes(test_folder(), "claims.parquet", out.data, out.len);
    text_release(&file), text_release(&out);
    return path;
}

TEST(source_allocates_no_memory_for_rows_that_a_file_only_claims)
{
    const uint64_t claimed[] = {UINT64_C(1) << 50, UINT64_C(1) << 59, (UINT64_C(1) << 61) - 3};
    for (size_t i = 0; i < 3; i++) {
        struct source_config c = {.path = claim_rows(claimed[i]),
                                  .column = "text",
                                  .weight = 1,
                                  .filter_column = "text",
                                  .filter_value = "one"};
        struct source s;
        CHECK_STATUS(DATA, source_open(&s, &c));
        CHECK_MESSAGE("has fewer rows than");
    }
}

TEST(source_fingerprints_of_other_rows_or_neurons_differ)
{
    struct source_config c = {.path = parquet, .column = "spike_counts", .weight = 1};
    uint32_t seen[4];
    for (int i = 0; i < 4; i++) {
        if (i == 1) c.neurons = 5;
        if (i == 2) c.filter_column = "text", c.filter_value = "one";
        if (i == 3) c.filter_value = "last";
        struct source s = source_rig_open(&c);
        seen[i] = s.fingerprint;
        for (int k = 0; k < i; k++) CHECK(seen[k] != seen[i]);
        source_close(&s);
    }
}

/* The second file is the first one with the names of two columns exchanged. */
TEST(source_rejects_files_of_which_only_some_hold_spike_counts)
{
    static const char ids[] = "\x09input_ids", counts[] = "\x0cspike_counts";
    enum { IDS = sizeof ids - 1, COUNTS = sizeof counts - 1 };
    const char *folder = test_folder();
    struct text file = {0}, out = {0};
    CHECK_STATUS(OK, file_read(parquet, 1 << 20, &file));
    const char *end = file.data + file.len, *a = memmem(file.data, file.len, ids, IDS);
    const char *b = a ? memmem(a, (size_t)(end - a), counts, COUNTS) : NULL;
    CHECK(b);
    text_add(&out, file.data, (size_t)(a - file.data));
    text_add(&out, counts, COUNTS);
    text_add(&out, a + IDS, (size_t)(b - a) - IDS);
    text_add(&out, ids, IDS);
    text_add(&out, b + COUNTS, (size_t)(end - b) - COUNTS);
    rig_bytes(folder, "a.parquet", file.data, file.len);
    rig_bytes(folder, "b.parquet", out.data, out.len);
    struct source_config c = {
        .path = test_path(folder, "*.parquet"), .column = "spike_counts", .weight = 1};
    struct source s;
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    CHECK_MESSAGE(
        "b.parquet: the files of a source must all hold text, all token IDs or all spike");
    text_release(&file), text_release(&out);
}

TEST(source_reports_the_parquet_row_that_is_not_utf8)
{
    struct source_config c = {.path = parquet, .column = "not_utf8", .weight = 1};
    struct source s = source_rig_open(&c);
    struct text out = {0};
    CHECK_STATUS(RECORD, source_rig_read_part(&s, 0, 1, &out));
    CHECK_MESSAGE("row 0: the text is not UTF-8");
    text_release(&out);
    source_close(&s);
}
