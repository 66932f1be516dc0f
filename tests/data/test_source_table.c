// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

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
