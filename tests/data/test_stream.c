// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

#include "base/file.h"
#include "base/rng.h"
#include "data/stream.h"

enum { MOST_SOURCES = 4 };

/* Streams over sources of IDs. */
struct bench {
    struct source_config configs[MOST_SOURCES];
    struct source sources[MOST_SOURCES];
    struct source_identity identities[MOST_SOURCES];
    struct stream_rules rules;
    struct tokenizer *tokenizer;
    struct source_tokens tokens;
};

static void bench_init(struct bench *b, uint64_t num_streams, uint64_t window)
{
    *b = (struct bench){.rules = {.sources = b->sources,
                                  .identities = b->identities,
                                  .seed = 5,
                                  .num_streams = num_streams,
                                  .window = window,
                                  .overlap = true}};
}

static void bench_add(struct bench *b, const char *path, double weight)
{
    size_t i = b->rules.num_sources++;
    b->configs[i] = (struct source_config){.path = path, .column = "text", .weight = weight};
    CHECK_STATUS(OK, source_open(&b->sources[i], &b->configs[i]));
    for (size_t k = 0; k <= i; k++) b->identities[k] = (struct source_identity){k, i + 1};
}

/* Documents of 1 to 5 IDs; document d counts up from 1000 * (first + d). */
static void bench_add_documents(struct bench *b, int first, int documents, double weight)
{
    struct text bytes = {0};
    int lengths[200];
    for (int d = 0; d < documents; d++) lengths[d] = 1 + d * 7 % 5;
    const char *folder = test_folder();
    rig_tokens(folder, "t", lengths, documents, 0);
    CHECK_STATUS(OK, file_read(test_path(folder, "t.bin"), 1 << 20, &bytes));
    for (int d = 0, at = 0; d < documents; at += lengths[d++]) {
        for (int i = 0; i < lengths[d]; i++) {
            int32_t id = 1000 * (first + d) + i;
            memcpy(bytes.data + 4 * (at + i), &id, sizeof id);
        }
    }
    rig_bytes(folder, "t.bin", bytes.data, bytes.len);
    text_release(&bytes);
    bench_add(b, test_path(folder, "t"), weight);
}

static void bench_read_text(struct bench *b)
{
    CHECK_STATUS(OK, tokenizer_open(&b->tokenizer, "bytes", &(struct tokenizer_config){0}));
    CHECK_STATUS(OK, encoder_make(&b->tokens.encoder, b->tokenizer));
    b->tokens.tokenizer = b->tokenizer;
}

static void bench_release(struct bench *b)
{
    for (size_t i = 0; i < b->rules.num_sources; i++) source_close(&b->sources[i]);
    encoder_free(b->tokens.encoder);
    tokenizer_close(b->tokenizer);
    text_release(&b->tokens.text);
}

static enum status read_row(struct stream *s, struct source_tokens *t, int need, int32_t *ids,
                            unsigned char *begins, int *filled)
{
    struct token_row row = {.need = need, .ids = ids, .begins = begins};
    enum status st = stream_row(s, t, &row);
    *filled = row.filled;
    return st;
}

/* Reads the next `count` documents of a stream, checks that they are complete and returns their
 * numbers. */
static void draw_documents(struct bench *b, struct stream *s, int *documents, int count)
{
    int32_t id;
    unsigned char begins;
    int filled, n = -1, within = 0;
    b->rules.overlap = false;
    while (n < count) {
        CHECK_STATUS(OK, read_row(s, &b->tokens, 1, &id, &begins, &filled));
        CHECK(filled == 1);
        if (begins) {
            CHECK(n < 0 || within == 1 + documents[n] % 1000 * 7 % 5);
            CHECK(id % 1000 == 0);
            if (++n < count) documents[n] = id / 1000;
            within = 0;
        }
        CHECK(n == count || id == 1000 * documents[n] + within);
        within++;
    }
}

TEST(stream_reads_each_document_of_its_partition_once_per_epoch)
{
    enum { DOCUMENTS = 37, STREAMS = 3, EPOCHS = 4 };
    struct bench b;
    bench_init(&b, STREAMS, 5);
    bench_add_documents(&b, 0, DOCUMENTS, 1);
    int seen[EPOCHS][DOCUMENTS] = {0}, order[EPOCHS][DOCUMENTS], differ = 0;
    for (int n = 0; n < STREAMS; n++) {
        struct stream s;
        stream_init(&s, &b.rules, (uint64_t)n);
        int own = (n + 1) * DOCUMENTS / STREAMS - n * DOCUMENTS / STREAMS;
        int documents[EPOCHS * DOCUMENTS];
        draw_documents(&b, &s, documents, EPOCHS * own);
        for (int e = 0; e < EPOCHS; e++) {
            for (int i = 0; i < own; i++) {
                order[e][i] = documents[e * own + i];
                CHECK(order[e][i] >= n * DOCUMENTS / STREAMS);
                seen[e][order[e][i]]++;
            }
            differ += e && memcmp(order[e], order[e - 1], sizeof(int) * (size_t)own) != 0;
        }
        stream_release(&s);
    }
    for (int e = 0; e < EPOCHS; e++)
        for (int d = 0; d < DOCUMENTS; d++) CHECK(seen[e][d] == 1);
    CHECK(differ == STREAMS * (EPOCHS - 1));
    bench_release(&b);
}

TEST(stream_shuffles_within_windows_only)
{
    enum { DOCUMENTS = 60 };
    static const int windows[] = {1, 2, 7, 60, 1000};
    for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
        struct bench b;
        struct stream s;
        int documents[DOCUMENTS], moved = 0, window = windows[k];
        bench_init(&b, 1, (uint64_t)window);
        bench_add_documents(&b, 0, DOCUMENTS, 1);
        stream_init(&s, &b.rules, 0);
        draw_documents(&b, &s, documents, DOCUMENTS);
        for (int i = 0; i < DOCUMENTS; i++) {
            CHECK(documents[i] / window == i / window);
            moved += documents[i] != i;
        }
        CHECK(window == 1 ? !moved : moved > DOCUMENTS / 4);
        stream_release(&s);
        bench_release(&b);
    }
}

TEST(stream_order_depends_only_on_seed_and_stream)
{
    enum { DOCUMENTS = 40, DRAWS = 60 };
    struct bench b;
    int documents[5][DRAWS];
    bench_init(&b, 1, 40);
    bench_add_documents(&b, 0, DOCUMENTS, 1);
    bench_add_documents(&b, 100, DOCUMENTS, 1);
    for (int k = 0; k < 4; k++) {
        struct stream s;
        b.rules.seed = k == 2 ? 6 : 5;
        b.rules.num_streams = k == 3 ? 2 : 1;
        stream_init(&s, &b.rules, k == 3);
        draw_documents(&b, &s, documents[k], DRAWS);
        stream_release(&s);
    }
    CHECK(!memcmp(documents[0], documents[1], sizeof documents[0]));
    CHECK(memcmp(documents[0], documents[2], sizeof documents[0]));
    CHECK(memcmp(documents[0], documents[3], sizeof documents[0]));
    bench_release(&b);
}

TEST(stream_draws_from_sources_by_weight)
{
    enum { DRAWS = 8000 };
    static const double weights[] = {1, 0, 0.5, 2.5};
    struct bench b;
    struct stream s;
    int *documents = heap(DRAWS * sizeof *documents), counts[4] = {0};
    bench_init(&b, 1, 8);
    for (int i = 0; i < 4; i++) bench_add_documents(&b, 100 * i, 10 + i, weights[i]);
    stream_init(&s, &b.rules, 0);
    for (int i = 0; i < 4; i++) CHECK(s.partitions[i].range.end == (uint64_t)(10 + i));
    b.rules.overlap = false;
    for (int n = 0; n < DRAWS;) {
        int32_t id;
        unsigned char begins;
        int filled;
        CHECK_STATUS(OK, read_row(&s, &b.tokens, 1, &id, &begins, &filled));
        counts[id / 100000] += begins;
        n += begins;
    }
    for (int i = 0; i < 4; i++) /* within four standard deviations */
        CHECK(fabs(counts[i] - DRAWS * weights[i] / 4) <= 4 * sqrt(DRAWS * weights[i] / 4));
    stream_release(&s);
    bench_release(&b);
    free(documents);
}

TEST(stream_rows_continue_with_one_overlapping_token_or_none)
{
    enum { NEED = 7, ROWS = 30 };
    for (int overlap = 0; overlap < 2; overlap++) {
        struct bench b;
        struct stream one, rows;
        int32_t ids[NEED], id;
        unsigned char begins[NEED], begin;
        int filled;
        bench_init(&b, 1, 4);
        bench_add_documents(&b, 0, 11, 1);
        stream_init(&one, &b.rules, 0);
        stream_init(&rows, &b.rules, 0);
        for (int r = 0; r < ROWS; r++) {
            int32_t last = ids[NEED - 1];
            b.rules.overlap = overlap;
            CHECK_STATUS(OK, read_row(&rows, &b.tokens, NEED, ids, begins, &filled));
            CHECK(filled == NEED);
            b.rules.overlap = false;
            int i = overlap && r > 0;
            CHECK(!i || (ids[0] == last && !begins[0]));
            for (; i < NEED; i++) {
                CHECK_STATUS(OK, read_row(&one, &b.tokens, 1, &id, &begin, &filled));
                CHECK(ids[i] == id && begins[i] == begin);
            }
        }
        stream_release(&one), stream_release(&rows);
        bench_release(&b);
    }
}

TEST(stream_in_a_single_pass_reads_sources_in_turn_and_ends)
{
    enum { NEED = 1000 };
    struct bench b;
    struct stream s;
    int32_t ids[NEED];
    unsigned char begins[NEED];
    int filled, n = 0;
    bench_init(&b, 1, 1);
    b.rules.once = true;
    bench_add_documents(&b, 0, 20, 1);
    bench_add_documents(&b, 20, 5, 7);
    stream_init(&s, &b.rules, 0);
    CHECK_STATUS(OK, read_row(&s, &b.tokens, NEED, ids, begins, &filled));
    for (int i = 0; i < filled; i++) CHECK(!begins[i] || ids[i] == 1000 * n++);
    CHECK(n == 25 && filled < NEED && s.ended);
    CHECK_STATUS(OK, read_row(&s, &b.tokens, NEED, ids, begins, &filled));
    CHECK(filled == 0 && s.ended);
    stream_release(&s);
    bench_release(&b);
}

TEST(stream_of_empty_documents_fails)
{
    static const char empty[] = "{\"text\": \"\"}\n{\"text\": \"\"}\n";
    const char *folder = test_folder();
    for (int mixed = 0; mixed < 2; mixed++) {
        struct bench b;
        struct stream s;
        int32_t ids[8];
        unsigned char begins[8];
        int filled;
        enum status st = STATUS_OK;
        bench_init(&b, 1, 8);
        bench_read_text(&b);
        bench_add(&b, rig_text(folder, "empty.jsonl", empty), 1);
        if (mixed) bench_add(&b, rig_text(folder, "a.jsonl", "{\"text\": \"a\"}\n"), 1);
        stream_init(&s, &b.rules, 0);
        for (int r = 0; r < 100 && !st; r++) st = read_row(&s, &b.tokens, 8, ids, begins, &filled);
        CHECK(st == STATUS_DATA);
        CHECK_MESSAGE("empty.jsonl: all documents of stream 0 of 1 are empty");
        stream_release(&s);
        bench_release(&b);
    }
}

TEST(stream_skips_empty_documents)
{
    struct bench b;
    struct stream s;
    int32_t ids[60];
    unsigned char begins[60];
    int filled;
    bench_init(&b, 1, 8);
    bench_read_text(&b);
    bench_add(&b, rig_text(test_folder(), "a.jsonl", "{\"text\": \"\"}\n{\"text\": \"a\"}\n"), 1);
    stream_init(&s, &b.rules, 0);
    CHECK_STATUS(OK, read_row(&s, &b.tokens, 60, ids, begins, &filled));
    for (int i = 0; i < 60; i++) CHECK(ids[i] == 'a' && begins[i]);
    stream_release(&s);
    bench_release(&b);
}

static bool can_partition(const char *path, uint64_t streams, double validation_share)
{
    struct bench b;
    bool can = false;
    bench_init(&b, streams, 1);
    bench_add(&b, path, 1);
    b.rules.validation_share = validation_share;
    CHECK_STATUS(OK, stream_can_partition(&b.rules, 0, streams, &can));
    bench_release(&b);
    return can;
}

TEST(stream_can_partition_a_source_with_a_document_for_each_stream)
{
    const char *folder = test_folder();
    struct text even = {0}, uneven = {0}, blank = {0}, packed = {0};
    text_adds(&uneven, "{\"text\": \"");
    for (int i = 0; i < 1000; i++) text_adds(&uneven, "long ");
    text_adds(&uneven, "\"}\n");
    for (int i = 0; i < 64; i++) {
        text_adds(&even, "{\"text\": \"a\"}\n");
        text_adds(&uneven, "{\"text\": \"a\"}\n");
        text_adds(&blank, "\n{\"text\": \"a\"}\n\r\n \n");
    }
    rig_gzip(&packed, blank.data, blank.len);
    const char *a = rig_text(folder, "a.jsonl", even.data);
    const char *b = rig_text(folder, "b.jsonl", uneven.data);
    const char *c = rig_bytes(folder, "c.jsonl.gz", packed.data, packed.len);
    rig_tokens(folder, "d", (int[]){1, 0, 2, 0}, 4, 0);
    const char *d = test_path(folder, "d");
    CHECK(can_partition(a, 1, 0) && can_partition(a, 64, 0) && !can_partition(a, 65, 0));
    CHECK(can_partition(b, 1, 0) && !can_partition(b, 8, 0));
    CHECK(can_partition(c, 64, 0) && !can_partition(c, 65, 0));
    CHECK(can_partition(d, 2, 0) && !can_partition(d, 4, 0));
    CHECK(can_partition(a, 4, 0.5) && !can_partition(a, 64, 0.5));
    CHECK(can_partition(c, 4, 0.5) && !can_partition(c, 64, 0.5));
    text_release(&even), text_release(&uneven), text_release(&blank), text_release(&packed);
}

TEST(stream_load_rejects_integers_that_stream_save_cannot_write)
{
    enum { INTS = STREAM_INTS + PARTITION_INTS };
    struct bench b;
    struct stream s;
    int64_t good[INTS], bad[INTS];
    int32_t ids[9];
    unsigned char begins[9];
    int filled;
    bench_init(&b, 2, 4);
    bench_add_documents(&b, 0, 20, 1);
    stream_init(&s, &b.rules, 1);
    stream_save(&s, good);
    CHECK_STATUS(OK, stream_load(&s, good, NULL));
    CHECK_STATUS(OK, read_row(&s, &b.tokens, 9, ids, begins, &filled));
    stream_save(&s, good);
    static const struct {
        int at;
        int64_t value;
    } cases[] = {{0, -1}, {1, -1}, {2, -2}, {2, 1}, {3, -1},
                 {4, -2}, {5, -1}, {6, -1}, {6, 9}, {7, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(bad, good, sizeof bad);
        bad[cases[i].at] = cases[i].value;
        CHECK_STATUS(DATA, stream_load(&s, bad, NULL));
        CHECK_MESSAGE("the data position of stream 1 is damaged");
    }
    good[7] = 5; /* of a window of 4 */
    CHECK_STATUS(OK, stream_load(&s, good, NULL));
    CHECK_STATUS(DATA, read_row(&s, &b.tokens, 9, ids, begins, &filled));
    CHECK_MESSAGE("the data position points outside its shuffle window");
    stream_release(&s);
    bench_release(&b);
}

TEST(stream_frees_the_memory_of_a_long_document)
{
    enum { LONG = 1000000 };
    int lengths[] = {10, LONG, 10};
    struct bench b;
    struct stream s;
    int32_t *ids = heap(LONG * sizeof *ids);
    unsigned char *begins = heap(LONG);
    int filled;
    const char *folder = test_folder();
    bench_init(&b, 1, 1);
    b.rules.overlap = false;
    rig_tokens(folder, "t", lengths, 3, 0);
    bench_add(&b, test_path(folder, "t"), 1);
    stream_init(&s, &b.rules, 0);
    CHECK_STATUS(OK, read_row(&s, &b.tokens, 10 + 1, ids, begins, &filled));
    CHECK(s.draws == 2 && s.tokens.capacity >= LONG);
    CHECK_STATUS(OK, read_row(&s, &b.tokens, LONG, ids, begins, &filled));
    CHECK(s.draws == 3 && s.tokens.capacity < 1000);
    CHECK(ids[LONG - 2] == 10 + LONG - 1 && ids[LONG - 1] == 10 + LONG && begins[LONG - 1]);
    stream_release(&s);
    bench_release(&b);
    free(ids), free(begins);
}

/* --- data.packing = "best_fit" --- */

enum { MOST_DOCUMENTS = 300, MOST_NEED = 40 };

/* A source of documents of random lengths, whose IDs count up from 0 over all of them. */
struct packed_bench {
    struct bench bench;
    int documents, total, lengths[MOST_DOCUMENTS], first[MOST_DOCUMENTS + 1];
    int need;
    struct token_spans spans; /* of the last row */
};

static void packed_init(struct packed_bench *b, uint64_t seed)
{
    *b = (struct packed_bench){.need = 2 + (int)rng_below(MOST_NEED - 1, seed, RNG_TEST, 0, 0)};
    b->documents = 1 + (int)rng_below(MOST_DOCUMENTS, seed, RNG_TEST, 0, 1);
    uint64_t most = 1 + rng_below(3 * (uint64_t)b->need, seed, RNG_TEST, 0, 2);
    for (int d = 0; d < b->documents; d++) {
        b->lengths[d] = 1 + (int)rng_below(most, seed, RNG_TEST, 1, (uint64_t)d);
        b->first[d + 1] = b->first[d] + b->lengths[d];
    }
    b->total = b->first[b->documents];
    bench_init(&b->bench, 1, 1 + rng_below(80, seed, RNG_TEST, 0, 3));
    b->bench.rules.best_fit = true;
    b->bench.rules.overlap = seed % 4 != 0;
    b->bench.rules.seed = seed;
    const char *folder = test_folder();
    rig_tokens(folder, "t", b->lengths, b->documents, 0);
    bench_add(&b->bench, test_path(folder, "t"), 1);
}

static void packed_release(struct packed_bench *b)
{
    bench_release(&b->bench);
    token_spans_release(&b->spans);
}

static int document_of(const struct packed_bench *b, int32_t id)
{
    int d = 0;
    CHECK(id >= 0 && id < b->total);
    while (b->first[d + 1] <= id) d++;
    return d;
}

/* Checks the pieces of a row, and counts their tokens, without the overlapping ones. */
static void count_pieces(const struct packed_bench *b, const struct token_row *row, int *counts)
{
    const struct token_span *span = b->spans.items;
    CHECK(row->filled > 0 && row->filled <= row->need);
    for (int i = 0, end; i < row->filled; i = end) {
        int d = document_of(b, row->ids[i]), offset = row->ids[i] - b->first[d];
        CHECK(row->begins[i] == (TOKEN_PIECE | (offset ? 0 : TOKEN_BEGINS)));
        for (end = i + 1; end < row->filled && !row->begins[end]; end++)
            CHECK(row->ids[end] == row->ids[i] + end - i);
        CHECK(span < b->spans.items + b->spans.count && span->begin == i && span->count == end - i);
        CHECK(span->at == (uint64_t)d && span->first == (uint64_t)offset);
        span++;
        CHECK(offset + end - i <= b->lengths[d]);
        if (b->lengths[d] <= row->need) CHECK(end - i == b->lengths[d]);
        /* a longer one is cut after whole rows */
        if (offset + end - i < b->lengths[d]) CHECK(i == 0 && end == row->need);
        CHECK(offset % (row->need - b->bench.rules.overlap) == 0);
        for (int n = i + (offset && b->bench.rules.overlap); n < end; n++) counts[row->ids[n]]++;
    }
}

static struct token_row read_packed(struct packed_bench *b, struct stream *s, int32_t *ids,
                                    unsigned char *begins)
{
    struct token_row row = {.need = b->need, .ids = ids, .begins = begins, .spans = &b->spans};
    CHECK_STATUS(OK, stream_row(s, &b->bench.tokens, &row));
    return row;
}

TEST(packed_stream_delivers_each_token_once_per_epoch_and_cuts_only_long_documents)
{
    int runs = TEST_SLOWED ? 20 : 100;
    for (int run = 0; run < runs; run++) {
        struct packed_bench b;
        struct stream s;
        int32_t ids[MOST_NEED];
        unsigned char begins[MOST_NEED];
        packed_init(&b, (uint64_t)run);
        int *counts = heap((size_t)b.total * sizeof *counts);
        stream_init(&s, &b.bench.rules, 0);
        do {
            struct token_row row = read_packed(&b, &s, ids, begins);
            count_pieces(&b, &row, counts);
        } while (s.partitions[0].epoch < 2 || s.offset); /* to the end of a group */
        int epoch = (int)s.partitions[0].epoch, begun = 0;
        for (int i = 0; i < b.total; i++) CHECK(counts[i] == epoch || counts[i] == epoch + 1);
        for (int d = 0; d < b.documents; d++) begun += counts[b.first[d]];
        CHECK(begun == s.draws);
        stream_release(&s);
        packed_release(&b);
        free(counts);
    }
}

TEST(packed_stream_resumes_at_any_row)
{
    enum { ROWS = 250 };
    int runs = TEST_SLOWED ? 5 : 30;
    for (int run = 0; run < runs; run++) {
        struct packed_bench b;
        struct stream s;
        int64_t cursors[ROWS][STREAM_INTS + PARTITION_INTS], again[STREAM_INTS + PARTITION_INTS];
        int32_t(*ids)[MOST_NEED] = heap(ROWS * sizeof *ids), same[MOST_NEED];
        unsigned char begins[ROWS][MOST_NEED], begin[MOST_NEED];
        int filled[ROWS];
        packed_init(&b, (uint64_t)run);
        stream_init(&s, &b.bench.rules, 0);
        for (int r = 0; r < ROWS; r++) {
            stream_save(&s, cursors[r]);
            CHECK(cursors[r][0] == r);
            filled[r] = read_packed(&b, &s, ids[r], begins[r]).filled;
        }
        stream_release(&s);
        for (uint64_t n = 0; n < 20; n++) {
            int at = (int)rng_below(ROWS, (uint64_t)run, RNG_TEST, 2, n);
            stream_init(&s, &b.bench.rules, 0);
            CHECK_STATUS(OK, stream_load(&s, cursors[at], NULL));
            for (int r = at; r < ROWS && r < at + 90; r++) {
                stream_save(&s, again);
                CHECK(!memcmp(again, cursors[r], sizeof again));
                CHECK(read_packed(&b, &s, same, begin).filled == filled[r]);
                CHECK(!memcmp(same, ids[r], (size_t)filled[r] * sizeof *same));
                CHECK(!memcmp(begin, begins[r], (size_t)b.need));
            }
            stream_release(&s);
        }
        packed_release(&b);
        free(ids);
    }
}

TEST(packed_stream_shuffles_the_rows_of_a_group)
{
    enum { NEED = 10, ROWS = 64 };
    struct bench b;
    struct stream s;
    int32_t ids[NEED];
    unsigned char begins[NEED];
    int lengths[40], filled, at_end = 0, moved = 0;
    for (int d = 0; d < 40; d++) lengths[d] = 10; /* full rows: 4 a group */
    bench_init(&b, 1, 1);
    b.rules.best_fit = true;
    const char *folder = test_folder();
    rig_tokens(folder, "t", lengths, 40, 0);
    bench_add(&b, test_path(folder, "t"), 1);
    stream_init(&s, &b.rules, 0);
    for (int r = 0; r < ROWS; r++) {
        CHECK_STATUS(OK, read_row(&s, &b.tokens, NEED, ids, begins, &filled));
        CHECK(ids[0] / 40 == r % 40 / 4);
        moved += ids[0] / 10 != r % 40;
        at_end += r % 4 == 3 && ids[0] % 40 == 30;
    }
    CHECK(moved > ROWS / 2 && at_end < ROWS / 8);
    stream_release(&s);
    bench_release(&b);
}

TEST(packed_stream_rejects_a_position_after_the_end_of_its_group)
{
    struct packed_bench b;
    struct stream s;
    int64_t ints[STREAM_INTS + PARTITION_INTS];
    int32_t ids[MOST_NEED];
    unsigned char begins[MOST_NEED];
    for (int is_changed = 0; is_changed < 2; is_changed++) {
        packed_init(&b, 7);
        stream_init(&s, &b.bench.rules, 0);
        read_packed(&b, &s, ids, begins);
        CHECK(s.group.num_rows > 1);
        stream_save(&s, ints);
        ints[STREAM_OFFSET] = INT64_C(1) << 40;
        b.bench.sources[0].is_changed = is_changed; /* by a user who accepts it */
        CHECK_STATUS(OK, stream_load(&s, ints, NULL));
        struct token_row row = {.need = b.need, .ids = ids, .begins = begins};
        enum status st = stream_row(&s, &b.bench.tokens, &row);
        CHECK(st == (is_changed ? STATUS_OK : STATUS_DATA));
        if (st) CHECK_MESSAGE("stream 0 is after row 1099511627776 of a group of ");
        stream_release(&s);
        packed_release(&b);
    }
}
