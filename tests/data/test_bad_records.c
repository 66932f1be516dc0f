// SPDX-License-Identifier: Apache-2.0
#include "data/bad_records.h"

#include "base/json.h"
#include "data/rig.h"

static enum status add(struct bad_records *b, uint64_t at, const char *reason)
{
    const struct bad_record r = {
        .source = "*.jsonl", .file = "a.jsonl", .unit = "line", .at = at, .reason = reason};
    return bad_records_add(b, &r);
}

TEST(bad_records_are_listed_as_json_lines)
{
    struct bad_records row = {.num_read = 9}, all = {.num_read = 5};
    struct text lines = {0};
    CHECK_STATUS(OK, add(&row, 7, "a \"quote\""));
    CHECK_STATUS(OK, add(&row, 8, "not UTF-8: \xE9"));
    row.is_repeat = true;
    CHECK_STATUS(OK, add(&row, 9, "again"));
    CHECK(row.num_bad == 2 && row.count == 2);
    bad_records_move(&all, &row);
    CHECK(!row.count && !row.num_bad && !row.num_read);
    CHECK(all.num_read == 14 && all.num_bad == 2 && all.count == 2);
    bad_records_write(&all, 3, &lines);
    CHECK(!strcmp(lines.data,
                  "{\"step\": 3, \"source\": \"*.jsonl\", \"file\": \"a.jsonl\", \"line\": 7, "
                  "\"reason\": \"a \\\"quote\\\"\"}\n"
                  "{\"step\": 3, \"source\": \"*.jsonl\", \"file\": \"a.jsonl\", \"line\": 8, "
                  "\"reason\": \"not UTF-8: \\ufffd\"}\n"));
    bad_records_clear(&all);
    CHECK(!all.count && all.num_bad == 2);
    text_clear(&lines);
    CHECK_STATUS(OK, add(&all, 1, "x"));
    bad_records_write(&all, -1, &lines);
    CHECK(!strncmp(lines.data, "{\"source\"", 9));
    bad_records_release(&all), bad_records_release(&row);
    text_release(&lines);
}

TEST(a_row_has_at_most_a_thousand_bad_records_unless_there_is_no_limit)
{
    struct bad_records b = {0};
    for (int i = 0; i < BAD_RECORDS_LISTED; i++) CHECK_STATUS(OK, add(&b, (uint64_t)i, "bad"));
    CHECK_STATUS(DATA, add(&b, 4321, "bad"));
    CHECK_MESSAGE("more than 1000 bad records for a single row");
    CHECK_MESSAGE("a.jsonl, line 4321: bad");
    b.is_unlimited = true;
    CHECK_STATUS(OK, add(&b, 1, "bad"));
    CHECK(b.count == BAD_RECORDS_LISTED && b.num_bad == BAD_RECORDS_LISTED + 2);
    bad_records_release(&b);
}

TEST(the_limit_is_a_share_of_the_records_and_at_least_ten)
{
    static const struct {
        uint64_t read, bad;
        double limit;
        bool fails;
    } cases[] = {{10, 10, 0, false},          {11, 11, 0, true},
                 {1000, 11, 0.011, false},    {1000, 12, 0.011, true},
                 {100000, 100, 0.001, false}, {100000, 101, 0.001, true},
                 {20, 20, 1, false},          {0, 0, 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bad_records b = {0};
        CHECK_STATUS(OK, add(&b, 5, "unterminated string"));
        b.num_read = cases[i].read, b.num_bad = cases[i].bad;
        enum status st = bad_records_check(&b, cases[i].limit, NULL);
        CHECK(st == (cases[i].fails ? STATUS_DATA : STATUS_OK));
        if (st) CHECK_MESSAGE("a.jsonl, line 5: unterminated string");
        if (st) CHECK_MESSAGE("records are bad and were skipped");
        bad_records_release(&b);
    }
}

TEST(the_message_of_too_many_has_a_line_for_each_of_the_last_ones)
{
    struct bad_records b = {0};
    struct bad_record r = {.source = "*", .file = "a\nb.jsonl", .unit = "line", .reason = "x\ty"};
    for (r.at = 1; r.at <= 11; r.at++) CHECK_STATUS(OK, bad_records_add(&b, &r));
    b.num_read = 11;
    CHECK_STATUS(DATA, bad_records_check(&b, 0, NULL));
    const char *lines = strchr(status_message(), '\n');
    CHECK(lines && !strcmp(lines, "\n  a\\nb.jsonl, line 9: x\\ty\n  a\\nb.jsonl, line 10: x\\ty"
                                  "\n  a\\nb.jsonl, line 11: x\\ty"));
    bad_records_release(&b);
}

enum { T = 24, LINES = 60, NUM_BAD = 4 };
static const int bad_lines[NUM_BAD] = {0, 17, 18, 59}; /* from 0 */

/* Two files of lines in the same places: with bad ones, and with empty texts instead. */
static void write_lines(struct text *bad, struct text *empty)
{
    static const char *const lines[NUM_BAD] = {
        "{\"text\": \"caf\xE9 au lait\"}", "{\"text\": \"open", "{\"key\": \"has another name\"}",
        "not JSON at all"};
    for (int i = 0, n = 0; i < LINES; i++) {
        size_t before = bad->len;
        bool is_bad = n < NUM_BAD && i == bad_lines[n];
        if (is_bad)
            text_addf(bad, "%s\n", lines[n++]);
        else
            text_addf(bad, "{\"text\": \"%d:%.*s\"}\n", i, i * 7 % 41,
                      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTU");
        if (is_bad)
            text_addf(empty, "%-*s\n", (int)(bad->len - before) - 1, "{\"text\":\"\"}");
        else
            text_add(empty, bad->data + before, bad->len - before);
    }
}

static struct rig skipping_rig(const char *path)
{
    struct rig r;
    rig_init(&r, "bytes", T);
    r.data.on_bad_record = ON_BAD_RECORD_skip;
    r.data.bad_record_limit = 0.001;
    rig_add(&r, path, 1);
    return r;
}

/* Paths of both files, by name; compressed if the name says so. */
static void write_pair(const char *folder, bool gzip, const char *paths[2])
{
    struct text lines[2] = {{0}}, packed = {0};
    write_lines(&lines[0], &lines[1]);
    CHECK(lines[0].len == lines[1].len);
    for (int i = 0; i < 2; i++) {
        text_clear(&packed);
        rig_gzip(&packed, lines[i].data, lines[i].len);
        const char *name = i      ? gzip ? "empty.jsonl.gz" : "empty.jsonl"
                           : gzip ? "bad.jsonl.gz"
                                  : "bad.jsonl";
        paths[i] = rig_bytes(folder, name, gzip ? packed.data : lines[i].data,
                             gzip ? packed.len : lines[i].len);
        text_release(&lines[i]);
    }
    text_release(&packed);
}

TEST(skipped_records_are_empty_documents_for_any_readers_and_prefetching)
{
    enum { ROWS = 240 }; /* several epochs */
    const char *folder = test_folder(), *paths[2];
    for (int c = 0; c < 2 * 2 * 3 * 2; c++) {
        int readers = 1 << c / 4 % 3;
        write_pair(folder, c % 2, paths);
        struct rig bad = skipping_rig(paths[0]), empty = skipping_rig(paths[1]);
        empty.data.on_bad_record = ON_BAD_RECORD_stop;
        uint64_t num_bad = 0, num_read = 0;
        for (int reader = 0; reader < readers; reader++) {
            bad.data.packing = empty.data.packing = c / 12;
            bad.options.reader = empty.options.reader = reader;
            bad.options.num_readers = empty.options.num_readers = readers;
            bad.options.prefetch_rows = c / 2 % 2 * 50;
            struct rows got = {0}, want = rows_of(&empty, 1, ROWS / readers);
            struct loader *l = rig_open(&bad);
            rows_read(&got, l, T, 3, ROWS / readers);
            rows_check_same(&got, 0, &want, 0, ROWS / readers);
            const struct bad_records *b = loader_bad_records(l);
            CHECK(b->count == b->num_bad);
            num_bad += b->num_bad, num_read += b->num_read;
            loader_close(l);
            rows_release(&got), rows_release(&want);
        }
        CHECK(num_bad == NUM_BAD && num_read == LINES); /* those of the first epoch */
        rig_release(&bad), rig_release(&empty);
    }
}

static void check_resumed_count(enum data_packing packing)
{
    enum { ROWS = 60 };
    const char *paths[2];
    write_pair(test_folder(), false, paths);
    struct rig r = skipping_rig(paths[0]);
    r.data.packing = packing;
    struct text cursors[ROWS] = {{0}}, listed[ROWS] = {{0}}, all = {0}, last = {0};
    struct rows rows = {0};
    struct loader *l = rig_open(&r);
    for (int g = 0; g < ROWS; g++) {
        loader_save(l, &(struct json_writer){.text = &cursors[g]});
        bad_records_write(loader_bad_records(l), 0, &listed[g]);
        rows_read(&rows, l, T, 1, 1);
    }
    bad_records_write(loader_bad_records(l), 0, &all);
    loader_save(l, &(struct json_writer){.text = &last});
    CHECK(strstr(last.data, "\"records\": {\"read\": 60, \"bad\": 4}"));
    loader_close(l);
    for (int g = 0; g < ROWS; g++) {
        struct json *root = NULL;
        struct text again = {0};
        r.options.prefetch_rows = g % 3;
        l = rig_open(&r);
        CHECK_STATUS(OK, json_parse(cursors[g].data, cursors[g].len, "cursor", &root));
        CHECK_STATUS(OK, loader_load(l, root));
        json_free(root);
        rows_read(&rows, l, T, 1, ROWS - g);
        bad_records_write(loader_bad_records(l), 0, &listed[g]);
        CHECK(!strcmp(listed[g].data, all.data));
        loader_save(l, &(struct json_writer){.text = &again});
        CHECK(!strcmp(again.data, last.data));
        loader_close(l);
        text_release(&again), text_release(&cursors[g]), text_release(&listed[g]);
    }
    text_release(&all), text_release(&last);
    rows_release(&rows);
    rig_release(&r);
}

TEST(a_resumed_loader_lists_each_record_once_and_continues_the_count)
{
    check_resumed_count(PACKING_concatenate);
    check_resumed_count(PACKING_best_fit);
}

static enum status read_row(struct loader *l)
{
    int32_t room[4][T];
    int rows;
    struct batch b = {.B = 1,
                      .T = T,
                      .ids_BT = room[0],
                      .labels_BT = room[1],
                      .start_BT = room[2],
                      .end_BT = room[3]};
    return loader_next(l, &b, &rows);
}

TEST(a_bad_record_stops_unless_it_is_skipped)
{
    const char *paths[2];
    write_pair(test_folder(), false, paths);
    struct rig r = skipping_rig(paths[0]);
    r.data.on_bad_record = ON_BAD_RECORD_stop;
    r.data.shuffle_window = 1;
    struct loader *l = rig_open(&r);
    CHECK_STATUS(DATA, read_row(l));
    CHECK_MESSAGE("data.on_bad_record = \"skip\" would skip it");
    CHECK_MESSAGE("bad.jsonl, from byte 0: byte 10 of the line: the string is not UTF-8");
    loader_close(l);
    rig_release(&r);
}

TEST(a_single_pass_counts_bad_records_on_the_first_reader_only)
{
    const char *paths[2];
    write_pair(test_folder(), true, paths);
    struct rig r = skipping_rig(paths[0]);
    r.options.once = true;
    for (int readers = 1; readers <= 3; readers++)
        for (int reader = 0; reader < readers; reader++) {
            struct rows rows = {0};
            r.options.reader = reader, r.options.num_readers = readers;
            r.options.prefetch_rows = readers - 1;
            struct loader *l = rig_open(&r);
            rows_read(&rows, l, T, 2, 1000);
            CHECK(loader_bad_records(l)->num_bad == (reader ? 0 : NUM_BAD));
            CHECK(loader_bad_records(l)->count == (reader ? 0 : NUM_BAD));
            CHECK(loader_bad_records(l)->num_read == (reader ? 0 : LINES));
            rows_release(&rows);
            loader_close(l);
        }
    rig_release(&r);
}

TEST(a_file_of_bad_records_ends_the_run_and_does_not_hang)
{
    struct text lines = {0};
    for (int i = 0; i < 1500; i++) text_adds(&lines, "{\"wrong\": \"key\"}\n");
    struct rig r = skipping_rig(rig_text(test_folder(), "a.jsonl", lines.data));
    r.data.streams = 1;
    struct loader *l = rig_open(&r);
    CHECK_STATUS(DATA, read_row(l));
    CHECK_MESSAGE("more than 1000 bad records for a single row");
    loader_close(l);
    r.data.bad_record_limit = 1;
    l = rig_open(&r);
    CHECK_STATUS(DATA, read_row(l));
    CHECK_MESSAGE("all documents of stream 0 of 1 are empty or bad");
    loader_close(l);
    text_release(&lines);
    rig_release(&r);
}

TEST(every_kind_of_source_names_its_bad_records)
{
    const char *folder = test_folder();
    struct text text = {0};
    for (int i = 0; i < 600; i++) text_addf(&text, "line %d of the text\n", i);
    text.data[9000] = '\xFF';
    const struct {
        const char *path, *column, *unit;
        uint64_t at;
        int vocab;
        const char *reason;
    } cases[] = {
        {rig_text(folder, "a.txt", text.data), "", "offset", 8206, 0,
         "the text is not UTF-8: its byte 794 is 0xFF"},
        {"tests/oracle/data/parquet/documents.parquet", "spike_counts", "row", 4, 0,
         "its lists differ in length"},
        {"tests/oracle/data/arrow/stream.arrow", "input_ids", "row", 0, 0,
         "its list of token IDs has a null"}, /* and row 4 an ID that is out of range */
        {"tests/oracle/data/parquet/documents.parquet", "not_utf8", "row", 0, 0,
         "the text is not UTF-8: its byte "},
        {rig_array(folder, "rows.npy", 50, 7), "", "row", 35, 249, "element 249 is 249"},
        {test_path(folder, "tokens"), "", "document", 1, 5, "token ID 5; the vocabulary size is 5"},
    };
    rig_tokens(folder, "tokens", (const int[]){4, 3}, 2, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig r = skipping_rig(cases[i].path);
        struct rows rows = {0};
        r.sources[0].column = cases[i].column;
        r.options.once = true;
        r.options.vocab_size = cases[i].vocab;
        if (cases[i].vocab) r.options.tokenizer = NULL;
        struct loader *l = rig_open(&r);
        rows_read(&rows, l, T, 1, 10000);
        const struct bad_records *b = loader_bad_records(l);
        CHECK(b->count == (cases[i].column[0] == 'i' ? 2 : 1) && b->num_read > 1);
        const struct bad_record *bad = &b->list[0];
        if (strcmp(bad->unit, cases[i].unit) || bad->at != cases[i].at ||
            !strstr(bad->reason, cases[i].reason))
            fail_msg("%s: %s %llu: %s", cases[i].path, bad->unit, (unsigned long long)bad->at,
                     bad->reason);
        CHECK(!strcmp(bad->source, cases[i].path) && bad->file[0]);
        loader_close(l);
        rows_release(&rows);
        rig_release(&r);
    }
    text_release(&text);
}

TEST(a_bad_sequence_keeps_its_place_in_megatrons_samples_without_loss)
{
    enum { ROWS = 12 };
    const char *folder = test_folder();
    const int lengths[] = {10, 10, 10};
    struct rows rows[2] = {{0}};
    rig_tokens(folder, "tokens", lengths, 3, 0); /* IDs 0 to 29 */
    for (int i = 0; i < 2; i++) {
        struct rig r;
        rig_init(&r, NULL, 4);
        r.data.order = ORDER_megatron;
        r.data.on_bad_record = ON_BAD_RECORD_skip;
        r.options.run_rows = ROWS;
        r.options.vocab_size = i ? 15 : 30;
        rig_add(&r, test_path(folder, "tokens"), 1);
        struct loader *l = rig_open(&r);
        rows_read(&rows[i], l, 4, 1, ROWS);
        CHECK(loader_bad_records(l)->count == 0 || i);
        if (i) CHECK(loader_bad_records(l)->count > 2);
        if (i) CHECK(!strcmp(loader_bad_records(l)->list[0].unit, "sequence"));
        loader_close(l);
        rig_release(&r);
    }
    CHECK(rows[0].valid == ROWS * 4 && rows[1].valid > 0 && rows[1].valid < rows[0].valid);
    for (int i = 0; i < ROWS * 4; i++) {
        int32_t label = rows[1].labels[i];
        CHECK(label == rows[0].labels[i] || label == -100);
        if (label != -100) CHECK(rows[1].ids[i] == rows[0].ids[i] && label < 15);
        CHECK(rows[1].start[i] == rows[0].start[i] && rows[1].end[i] == rows[0].end[i]);
    }
    rows_release(&rows[0]), rows_release(&rows[1]);
}
