// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"
#include "data/row_split.h"

#include "base/json.h"
#include "data/cyclic.h"
#include "ops/cross_entropy.h"

#include <zlib.h>

/* The datasets of tests/oracle/megatron_order.py: three sets of short sequences, some empty. Writes
 * the first 1/part of each. */
enum { SOURCES = 3 };
static const char *const names[SOURCES] = {"a", "b", "c"};

static const char *write_sources(int part)
{
    const char *folder = test_folder();
    static const int documents[SOURCES] = {42000, 30000, 23000};
    for (int s = 0; s < SOURCES; s++) {
        int *lengths = heap((size_t)documents[s] * sizeof *lengths);
        for (int64_t d = 0; d < documents[s] / part; d++)
            lengths[d] = (int)((d * d * 7 + d * 13 + s * 5) % 37);
        rig_tokens(folder, names[s], lengths, documents[s] / part, s << 24);
        free(lengths);
    }
    return folder;
}

static void megatron_rig(struct rig *r, int seq_len, const char *split, int64_t samples)
{
    rig_init(r, NULL, seq_len);
    r->data.order = ORDER_megatron;
    r->data.seed = 1234;
    r->data.split = split;
    r->options.run_rows = samples;
}

/* CRC-32 of the tokens of up to `rows` rows of seq_len + 1; *got: number of rows read. */
static uint32_t crc_of(struct rig *r, int64_t rows, int64_t *got)
{
    enum { B = 500 };
    int T = r->options.seq_len;
    size_t tokens = (size_t)B * (size_t)T;
    int32_t *arrays[4];
    for (int i = 0; i < 4; i++) arrays[i] = heap(tokens * sizeof(int32_t));
    struct batch b = {.B = B,
                      .T = T,
                      .ids_BT = arrays[0],
                      .labels_BT = arrays[1],
                      .start_BT = arrays[2],
                      .end_BT = arrays[3]};
    struct loader *l = rig_open(r);
    uLong crc = 0;
    int filled = B;
    for (*got = 0; *got < rows && filled == b.B; *got += filled) {
        if (rows - *got < B) b.B = (int)(rows - *got);
        CHECK_STATUS(OK, loader_next(l, &b, &filled));
        for (int i = 0; i < filled; i++) {
            const int32_t *ids = b.ids_BT + i * T, *labels = b.labels_BT + i * T;
            CHECK(!memcmp(ids + 1, labels, (size_t)(T - 1) * sizeof *ids));
            crc = crc32(crc, (const Bytef *)ids, (uInt)T * 4);
            crc = crc32(crc, (const Bytef *)(labels + T - 1), 4);
        }
    }
    loader_close(l);
    for (int i = 0; i < 4; i++) free(arrays[i]);
    return (uint32_t)crc;
}

static void add_blend(struct rig *r, const char *folder)
{
    static const double weights[SOURCES] = {0.5, 0.3, 0.2};
    for (int s = 0; s < SOURCES; s++) rig_add(r, test_path(folder, names[s]), weights[s]);
}

TEST(order_megatron_matches_megatron_core_for_a_million_blended_samples)
{
    struct rig r;
    int64_t rows;
    const char *folder = write_sources(1);
    megatron_rig(&r, 4, "949,50,1", 1000000);
    add_blend(&r, folder);
    CHECK(crc_of(&r, 1000000, &rows) == 0xa893fb4c && rows == 1000000);
    rig_release(&r);
}

TEST(order_megatron_matches_megatron_core_for_one_source_and_for_lengths)
{
    static const struct {
        const char *split;
        enum data_blend blend;
        int first, sources, seq_len;
        int64_t seed, samples, rows;
        bool held_out;
        uint32_t crc;
    } cases[] = {{"969, 30, 1", BLEND_BY_lengths, 0, 3, 16, 1234, 50000, 50000, false, 0x97037d1e},
                 {"80,20", BLEND_BY_auto, 0, 3, 16, 1234, 50000, 22646, true, 0x3bda827e},
                 {"1", BLEND_BY_auto, 1, 1, 10, 7, 100000, 119993, false, 0x73b75f70},
                 {"1", BLEND_BY_weights, 1, 1, 10, 7, 100000, 100000, false, 0xca296103}};
    const char *folder = write_sources(1);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct rig r;
        int64_t rows;
        megatron_rig(&r, cases[c].seq_len, cases[c].split, cases[c].samples);
        r.data.blend = cases[c].blend;
        r.data.seed = cases[c].seed;
        r.options.validation = r.options.once = cases[c].held_out;
        for (int s = 0; s < cases[c].sources; s++)
            rig_add(&r, test_path(folder, names[cases[c].first + s]), 2.5);
        CHECK(crc_of(&r, cases[c].rows, &rows) == cases[c].crc && rows == cases[c].rows);
        struct loader *l = rig_open(&r);
        struct rows all = {0};
        if (cases[c].held_out) { /* where the split ends */
            rows_read(&all, l, cases[c].seq_len, 7, cases[c].rows + 10);
            CHECK(all.count == cases[c].rows);
        }
        rows_release(&all);
        loader_close(l);
        rig_release(&r);
    }
}

/* With this many sources NumPy sums the weights pairwise. */
TEST(order_megatron_matches_megatron_core_for_twenty_sources)
{
    enum { MANY = 20 };
    const char *folder = write_sources(1);
    struct rig r;
    struct source_config sources[MANY];
    struct loader *l = NULL;
    struct rows rows = {0};
    megatron_rig(&r, 5, "7,2,1", 200000);
    for (int i = 0; i < MANY; i++)
        sources[i] = (struct source_config){.path = test_path(folder, names[i % SOURCES]),
                                            .column = "text",
                                            .weight = 1.0 / (i + 3)};
    r.data.sources = sources, r.data.num_sources = MANY;
    r.options.data = &r.data, r.options.objective = &r.objective;
    CHECK_STATUS(OK, loader_open(&l, &r.options));
    rows_read(&rows, l, 5, 1000, 200013);
    uLong crc = 0;
    for (int64_t g = 0; g < rows.count; g++) {
        crc = crc32(crc, (const Bytef *)(rows.ids + g * 5), 20);
        crc = crc32(crc, (const Bytef *)(rows.labels + g * 5 + 4), 4);
    }
    CHECK(rows.count == 200013 && crc == 0x826f6ca0);
    rows_release(&rows);
    loader_close(l);
    rig_release(&r);
}

TEST(order_megatron_mock_data_matches_megatron_core)
{
    struct rig r;
    int64_t rows;
    megatron_rig(&r, 64, "1", 2000000);
    r.options.vocab_size = 1000;
    rig_add(&r, "mock", 1);
    CHECK(crc_of(&r, 5000, &rows) == 0x56aed783 && rows == 5000);
    rig_release(&r);
}

/* With blocks of two, reader i of 3 gets rows 6 j + 2 i and 6 j + 2 i + 1. */
TEST(order_megatron_assigns_blocks_of_rows_to_readers)
{
    enum { T = 8, BLOCK = 2, READERS = 3, ROWS = 48 };
    struct rig r;
    const char *folder = write_sources(50);
    megatron_rig(&r, T, "1", 5000);
    add_blend(&r, folder);
    struct rows whole = rows_of(&r, 5, ROWS);
    for (int reader = 0; reader < READERS; reader++) {
        r.options.reader = reader, r.options.num_readers = READERS, r.options.block = BLOCK;
        struct rows own = rows_of(&r, BLOCK, ROWS / READERS);
        for (int64_t k = 0; k < own.count; k++)
            rows_check_same(&own, k, &whole,
                            k / BLOCK * BLOCK * READERS + reader * BLOCK + k % BLOCK, 1);
        rows_release(&own);
    }
    rows_release(&whole);
    rig_release(&r);
}

TEST(order_megatron_resumes_at_any_row_with_any_number_of_readers)
{
    enum { T = 8, ROWS = 60 };
    struct rig r;
    const char *folder = write_sources(50);
    megatron_rig(&r, T, "949,50,1", 200000);
    add_blend(&r, folder);
    struct rows whole = rows_of(&r, 5, ROWS);
    for (int stop = 0; stop < 12; stop += 3) {
        for (int readers = 1; readers < 5; readers++) {
            r.options = (struct loader_options){.seq_len = T,
                                                .num_readers = 1,
                                                .run_rows = 200000,
                                                .prefetch_rows = stop % 2 ? 5 : 0};
            struct loader *l = rig_open(&r);
            struct rows before = {0};
            struct text cursor = {0};
            struct json *json = NULL;
            rows_read(&before, l, T, 3, stop);
            loader_save(l, &(struct json_writer){.text = &cursor});
            loader_close(l);
            CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &json));
            r.options.num_readers = readers, r.options.block = 2;
            for (int reader = 0; reader < readers; reader++) {
                struct rows after = {0};
                r.options.reader = reader;
                l = rig_open(&r);
                CHECK_STATUS(OK, loader_load(l, json));
                rows_read(&after, l, T, 2, 4);
                const struct row_split split = {(uint64_t)readers, 2};
                uint64_t own = row_split_count(&split, (uint64_t)reader, (uint64_t)stop);
                for (uint64_t k = 0; k < 4; k++) {
                    uint64_t row = row_split_position(&split, (uint64_t)reader, own + k);
                    rows_check_same(&after, (int64_t)k, &whole, (int64_t)row, 1);
                }
                loader_close(l);
                rows_release(&after);
            }
            json_free(json);
            text_release(&cursor);
            rows_release(&before);
        }
    }
    rows_release(&whole);
    rig_release(&r);
}

static enum status load_text(struct loader *l, const char *cursor)
{
    struct json *json = NULL;
    CHECK_STATUS(OK, json_parse(cursor, strlen(cursor), "cursor", &json));
    enum status st = loader_load(l, json);
    json_free(json);
    return st;
}

/* MegatronPretrainingSampler deals microbatches from consumed_samples on, beginning with rank 0; so
 * does a run that resumes `stop` rows later. */
static void check_consumed(struct rig *r, const char *cursor, int stop, const struct rows *whole)
{
    enum { T = 8, BLOCK = 2, CONSUMED = 7, OWN = 4 };
    for (int readers = 1; readers <= 3; readers++)
        for (int reader = 0; reader < readers; reader++) {
            struct rows own = {0};
            r->options.reader = reader, r->options.num_readers = readers, r->options.block = BLOCK;
            struct loader *l = rig_open(r);
            CHECK_STATUS(OK, load_text(l, cursor));
            CHECK(loader_position(l) == CONSUMED + (uint64_t)stop);
            rows_read(&own, l, T, BLOCK, OWN);
            for (int64_t k = 0; k < OWN; k++) {
                int64_t at = k / BLOCK * BLOCK * readers + reader * BLOCK + k % BLOCK;
                rows_check_same(&own, k, whole, CONSUMED + stop + at, 1);
            }
            loader_close(l);
            rows_release(&own);
        }
}

TEST(order_megatron_continues_after_the_samples_that_a_run_of_megatron_consumed)
{
    struct rig r;
    struct text cursor = {0};
    struct rows before = {0};
    static const char consumed[] = "{\"consumed_train_samples\": 7}";
    const char *folder = write_sources(50);
    megatron_rig(&r, 8, "1", 5000);
    add_blend(&r, folder);
    struct rows whole = rows_of(&r, 1, 40);
    struct loader *l = rig_open(&r);
    CHECK_STATUS(OK, load_text(l, consumed));
    rows_read(&before, l, 8, 1, 12);
    loader_save(l, &(struct json_writer){.text = &cursor});
    loader_close(l);
    check_consumed(&r, consumed, 0, &whole);
    check_consumed(&r, cursor.data, 12, &whole);
    rows_release(&before), rows_release(&whole);
    text_release(&cursor);
    rig_release(&r);
}

TEST(consumed_samples_must_be_of_the_configured_order)
{
    struct rig r;
    const char *folder = write_sources(50);
    megatron_rig(&r, 8, "1", 500);
    rig_add(&r, test_path(folder, "a"), 1);
    r.data.sampler_ranks = 2, r.data.sampler_rows = 3;
    struct loader *l = rig_open(&r);
    CHECK_STATUS(CONFIG, load_text(l, "{\"consumed_train_samples\": 100000}"));
    CHECK_MESSAGE("has read 100000 samples, but the order has");
    CHECK_MESSAGE("set data.samples to its --train-samples");
    CHECK_STATUS(DATA, load_text(l, "{\"consumed_train_samples\": -1}"));
    loader_close(l);
    r.data.sampler = SAMPLER_cyclic;
    l = rig_open(&r);
    CHECK_STATUS(CONFIG, load_text(l, "{\"consumed_train_samples\": 9}"));
    CHECK_MESSAGE("do not end with a microbatch of 3 rows on each of 2 ranks");
    CHECK_STATUS(OK, load_text(l, "{\"consumed_train_samples\": 12}"));
    struct rows after = {0}, whole = rows_of(&r, 1, 20);
    rows_read(&after, l, 8, 1, 8);
    rows_check_same(&after, 0, &whole, 12, 8);
    loader_close(l);
    rows_release(&after), rows_release(&whole);
    rig_release(&r);
}

TEST(order_streams_begins_after_a_run_of_megatron)
{
    struct rig r;
    const char *folder = write_sources(50);
    rig_init(&r, NULL, 8);
    rig_add(&r, test_path(folder, "a"), 1);
    struct loader *l = rig_open(&r);
    CHECK_STATUS(OK, load_text(l, "{\"consumed_train_samples\": 12}"));
    CHECK(loader_position(l) == 0);
    struct rows after = {0}, whole = rows_of(&r, 1, 8);
    rows_read(&after, l, 8, 1, 8);
    rows_check_same(&after, 0, &whole, 0, 8);
    loader_close(l);
    rows_release(&after), rows_release(&whole);
    rig_release(&r);
}

TEST(order_megatron_rejects_a_cursor_of_another_order)
{
    struct rig r;
    struct text cursor = {0};
    struct json *json = NULL;
    const char *folder = write_sources(50);
    megatron_rig(&r, 8, "949,50,1", 500);
    add_blend(&r, folder);
    struct loader *l = rig_open(&r);
    loader_save(l, &(struct json_writer){.text = &cursor});
    loader_close(l);
    CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &json));
    for (int change = 0; change < 7; change++) {
        struct data_config kept = r.data;
        if (change == 1) r.data.split = "949,51";
        if (change == 2) r.data.samples = 501;
        if (change == 3) r.data.seed = 1235;
        if (change == 4) r.data.blend = BLEND_BY_lengths;
        if (change == 5) r.data.order = ORDER_streams;
        if (change == 6) r.data.sampler = SAMPLER_cyclic;
        l = rig_open(&r);
        CHECK(loader_load(l, json) == (change ? STATUS_CONFIG : STATUS_OK));
        if (change) CHECK_MESSAGE("different data settings");
        loader_close(l);
        r.data = kept;
    }
    r.data.samples = 500,
    r.options.run_rows = 900; /* data.samples keeps the order of a longer run */
    l = rig_open(&r);
    CHECK_STATUS(OK, loader_load(l, json));
    loader_close(l);
    json_free(json);
    text_release(&cursor);
    rig_release(&r);
}

TEST(order_megatron_draws_samples_in_cyclic_order)
{
    enum { ROWS = 40, T = 8, STEP = 2 };
    int32_t plain[500 * T], ids[ROWS * T], labels[ROWS * T], documents[ROWS * T], valid[ROWS * T];
    const char *folder = write_sources(50);
    struct cyclic c = {.samples = 500, .ranks = 4, .rows = STEP, .sharded = true};
    struct rig r;
    int filled;
    megatron_rig(&r, T, "949,50,1", 500);
    add_blend(&r, folder);
    struct loader *l = rig_open(&r);
    for (int i = 0; i < 500; i += 20) {
        struct batch b = {.B = 20,
                          .T = T,
                          .ids_BT = ids,
                          .labels_BT = labels,
                          .start_BT = documents,
                          .end_BT = valid};
        CHECK_STATUS(OK, loader_next(l, &b, &filled));
        memcpy(plain + i * T, ids, 20 * T * sizeof *ids);
    }
    loader_close(l);
    CHECK_STATUS(OK, cyclic_init(&c));
    r.data.sampler = SAMPLER_cyclic, r.data.sampler_ranks = 4, r.data.sampler_rows = STEP;
    for (int readers = 1; readers <= 2; readers++) /* the order does not depend on our readers */
        for (int reader = 0; reader < readers; reader++) {
            struct batch b = {.B = ROWS / readers,
                              .T = T,
                              .ids_BT = ids,
                              .labels_BT = labels,
                              .start_BT = documents,
                              .end_BT = valid};
            r.options.num_readers = readers, r.options.reader = reader, r.options.block = 5;
            l = rig_open(&r);
            CHECK_STATUS(OK, loader_next(l, &b, &filled));
            for (int i = 0; i < b.B; i++) {
                int row = (i / 5 * readers + reader) * 5 + i % 5;
                uint64_t sample = cyclic_at(&c, (uint64_t)row);
                CHECK(!memcmp(ids + i * T, plain + sample * T, T * sizeof *ids));
            }
            loader_close(l);
        }
    cyclic_release(&c);
    rig_release(&r);
}

TEST(order_megatron_ends_documents_where_sequences_end)
{
    enum { T = 12 };
    struct rig r;
    megatron_rig(&r, T, "1", 4);
    const char *folder = test_folder();
    rig_tokens(folder, "t", (int[]){5, 0, 7, 3, 9, 1}, 6, 100);
    rig_add(&r, test_path(folder, "t"), 1);
    struct rows rows = rows_of(&r, 2, 4);
    for (int64_t at = 0; at < rows.count * T; at++) {
        int64_t t = at % T;
        bool first_of_row = !t, follows = !first_of_row && rows.ids[at] == rows.ids[at - 1] + 1;
        int id = rows.ids[at];
        bool first_of_sequence = id == 100 || id == 105 || id == 112 || id == 115 || id == 124;
        CHECK(first_of_row || follows || first_of_sequence);
        CHECK(rows.start[at] <= t && t < rows.end[at]);
        if (t) CHECK((rows.start[at] == t) == first_of_sequence);
        CHECK(rows.labels[at] != LABEL_IGNORED);
    }
    rows_release(&rows);
    rig_release(&r);
}

TEST(order_megatron_fails_past_its_last_sample)
{
    enum { T = 4 };
    struct rig r;
    int32_t arrays[4][T];
    struct batch b = {.B = 1,
                      .T = T,
                      .ids_BT = arrays[0],
                      .labels_BT = arrays[1],
                      .start_BT = arrays[2],
                      .end_BT = arrays[3]};
    int rows;
    megatron_rig(&r, T, "1", 2);
    const char *folder = test_folder();
    rig_tokens(folder, "t", (int[]){9}, 1, 0);
    rig_add(&r, test_path(folder, "t"), 1);
    for (r.options.prefetch_rows = 0; r.options.prefetch_rows < 8; r.options.prefetch_rows += 5) {
        struct loader *l = rig_open(&r);
        CHECK_STATUS(OK, loader_next(l, &b, &rows));
        CHECK_STATUS(OK, loader_next(l, &b, &rows));
        CHECK_STATUS(DATA, loader_next(l, &b, &rows));
        CHECK_MESSAGE("row 2 is past the end of an order of 2 samples: increase data.samples");
        loader_close(l);
    }
    rig_release(&r);
}

TEST(order_megatron_counts_the_memory_of_its_indices)
{
    enum { L = 4, TOKENS = 10000, DOCUMENTS = 5 };
    const char *folder = test_folder();
    struct rig r;
    int64_t bytes[4];
    megatron_rig(&r, L, "1", 0);
    rig_tokens(folder, "t", (int[]){4000, 5000, 0, 900, 100}, DOCUMENTS, 0);
    rig_add(&r, test_path(folder, "t"), 1);
    for (int epochs = 1; epochs < 4; epochs++) {
        r.options.run_rows = ((int64_t)epochs * TOKENS - 1) / L;
        struct loader *l = rig_open(&r);
        bytes[epochs] = loader_memory_bytes(l);
        loader_close(l);
    }
    CHECK(bytes[1] >= 4 * DOCUMENTS + 12 * (TOKENS - 1) / L);
    CHECK(bytes[3] - bytes[2] == 4 * DOCUMENTS + 12 * TOKENS / L);
    CHECK(bytes[2] - bytes[1] == 4 * DOCUMENTS + 12 * TOKENS / L);
    rig_release(&r);
}

TEST(order_megatron_rejects_what_it_cannot_read)
{
    const char *folder = test_folder();
    struct rig r;
    struct loader *l = NULL;
    rig_text(folder, "a.jsonl", "{\"text\": \"a\"}\n");
    rig_tokens(folder, "t", (int[]){9}, 1, 0);
    for (int wrong = 0; wrong < 6; wrong++) {
        static const char *const messages[] = {
            "requires a .bin/.idx prefix or \"mock\" in each source",
            "training part of data.split = \"1\": 9 tokens in 1 sequences are fewer than one "
            "sample",
            "data.seed = 4294967296: must be less than 2^32",
            "leaves no data for training",
            "weight = 0: must be greater than 0",
            "leaves no data for validation"};
        megatron_rig(&r, 8, wrong == 3 ? "0,1" : "1", 10);
        rig_add(&r, test_path(folder, wrong ? "t" : "a.jsonl"), 1);
        if (wrong == 1) r.options.seq_len = 9, r.options.once = true;
        if (wrong == 2) r.data.seed = INT64_C(1) << 32;
        if (wrong == 4) rig_add(&r, test_path(folder, "t"), 0);
        r.options.validation = wrong == 5;
        r.data.sources = r.sources;
        r.options.data = &r.data, r.options.objective = &r.objective;
        enum status st = loader_open(&l, &r.options);
        CHECK(st == (wrong == 1 ? STATUS_DATA : STATUS_CONFIG));
        CHECK_MESSAGE(messages[wrong]);
        CHECK(!l);
        rig_release(&r);
    }
}

TEST(loader_masks_the_loss_after_end_of_text_with_eod_mask_loss)
{
    enum { EOS = 257 };
    static const int32_t want[8] = {'b', EOS, LABEL_IGNORED, EOS, LABEL_IGNORED, 'b', EOS};
    struct rig r;
    rig_init(&r, "bytes", 7);
    r.data.streams = r.data.shuffle_window = 1;
    r.data.bos = false;
    r.data.eod_mask_loss = true;
    rig_add(&r, rig_text(test_folder(), "a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n"), 1);
    struct rows rows = rows_of(&r, 1, 1);
    CHECK(!memcmp(rows.labels, want, 7 * sizeof *want) && rows.valid == 5);
    rows_release(&rows);
    struct loader *l = NULL;
    r.options.tokenizer = NULL;
    CHECK_STATUS(CONFIG, loader_open(&l, &r.options));
    CHECK_MESSAGE("data.eod_mask_loss = true requires a tokenizer");
    rig_release(&r);
}
