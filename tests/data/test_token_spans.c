// SPDX-License-Identifier: Apache-2.0
#include "data/token_spans.h"

#include "data/rig.h"

#include "base/json.h"
#include "data/source.h"
#include "data/stream.h"
#include "ops/cross_entropy.h"

#include <stdlib.h>

enum { T = 13 };

/* The IDs of every document of a loader's sources, read one by one. */
struct library {
    struct library_document {
        size_t source, file;
        uint64_t at;
        struct token_list ids;
    } * all;
    size_t count;
};

static void add_source(struct library *b, const struct loader *l, size_t i, const struct rig *r)
{
    const struct source *s = loader_source(l, i);
    struct source_range range = source_part(s, 0, 1);
    struct source_reader reader = {0};
    struct source_document d = {0};
    struct bad_records bad = {.is_unlimited = true};
    struct source_tokens t = {.tokenizer = r->tokenizer, .bos = true, .eos = true, .bad = &bad};
    if (r->tokenizer) CHECK_STATUS(OK, encoder_make(&t.encoder, r->tokenizer));
    for (bool none = false;;) {
        CHECK_STATUS(OK, source_find(s, &reader, &range, &d, &none));
        if (none) break;
        b->all = heap_grow(b->all, b->count + 1, sizeof *b->all);
        b->all[b->count] = (struct library_document){.source = i, .file = d.file, .at = d.at};
        CHECK_STATUS(OK, source_read(s, &d, &t, &b->all[b->count++].ids));
    }
    source_reader_close(&reader);
    bad_records_release(&bad);
    encoder_free(t.encoder);
    text_release(&d.text), text_release(&t.text);
}

static void library_release(struct library *b)
{
    for (size_t i = 0; i < b->count; i++) token_list_release(&b->all[i].ids);
    free(b->all);
}

static const struct library_document *find(const struct library *b, const struct token_span *x)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct library_document *d = &b->all[i];
        if (d->source == x->source && d->file == x->file && d->at == x->at) return d;
    }
    fail_msg("no document %zu %zu %llu", x->source, x->file, (unsigned long long)x->at);
    return NULL;
}

/* The spans of a row cover it, each with exactly the tokens of its document. */
static void check_row(const struct library *b, const struct token_row *row)
{
    int at = 0;
    for (size_t i = 0; i < row->spans->count; i++) {
        const struct token_span *x = &row->spans->items[i];
        const struct library_document *d = find(b, x);
        CHECK(x->begin == at && x->count > 0 && !x->is_skipped);
        CHECK(x->first + (uint64_t)x->count <= d->ids.count);
        CHECK(!memcmp(row->ids + at, d->ids.ids + x->first, (size_t)x->count * 4));
        at += x->count;
    }
    CHECK(at == row->filled);
}

/* The row as training gets it. */
static void check_same(const struct token_row *row, const struct rows *want, int64_t number)
{
    const int32_t *ids = want->ids + number * T, *labels = want->labels + number * T;
    CHECK(row->filled == T + 1 && !memcmp(row->ids, ids, T * 4));
    for (int i = 0; i < T; i++) CHECK(labels[i] == row->ids[i + 1] || labels[i] == LABEL_IGNORED);
}

static struct loader *resume(struct rig *r, struct loader *l)
{
    struct text cursor = {0};
    struct json *j;
    loader_save(l, &(struct json_writer){.text = &cursor});
    CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &j));
    loader_close(l);
    l = rig_open(r);
    CHECK_STATUS(OK, loader_load(l, j));
    json_free(j);
    text_release(&cursor);
    return l;
}

/* Reads `count` rows with their spans, and resumes after each `every` rows. */
static void check_rows(struct rig *r, int64_t count, int64_t every)
{
    struct library b = {0};
    struct rows want = rows_of(r, 1, count);
    r->options.lists_spans = true;
    struct loader *l = rig_open(r);
    for (size_t i = 0; i < loader_num_sources(l); i++) add_source(&b, l, i, r);
    for (int64_t g = 0; g < count; g++) {
        const struct token_row *row;
        uint64_t number;
        if (g && g % every == 0) l = resume(r, l);
        CHECK_STATUS(OK, loader_next_tokens(l, &row, &number));
        CHECK(number == (uint64_t)g && loader_position(l) == (uint64_t)g + 1);
        check_row(&b, row);
        check_same(row, &want, g);
    }
    loader_close(l);
    library_release(&b);
    rows_release(&want);
}

TEST(spans_name_the_tokens_of_every_row_for_every_kind_of_source)
{
    for (int kind = 0; kind < RIG_KINDS; kind++)
        for (int overlap = 0; overlap < 2; overlap++) {
            struct rig r;
            rig_init(&r, "bytes", T);
            r.data.row_overlap = overlap;
            rig_add_kind(&r, test_folder(), kind);
            check_rows(&r, 80, overlap ? 7 : 1000);
            rig_release(&r);
        }
}

TEST(spans_leave_out_bad_records)
{
    struct text lines = {0};
    struct rig r;
    for (int i = 0; i < 60; i++)
        text_addf(&lines, i % 5 == 3 ? "{\"other\": %d}\n" : "{\"text\": \"number %d\"}\n", i);
    rig_init(&r, "bytes", T);
    r.data.on_bad_record = ON_BAD_RECORD_skip;
    r.data.bad_record_limit = 1;
    rig_add(&r, rig_text(test_folder(), "a.jsonl", lines.data), 1);
    check_rows(&r, 60, 9);
    rig_release(&r);
    text_release(&lines);
}

TEST(spans_in_megatrons_order_name_sequences)
{
    int lengths[50];
    const char *folder = test_folder();
    struct rig r;
    for (int d = 0; d < 50; d++) lengths[d] = d * 7 % 23;
    rig_tokens(folder, "a", lengths, 50, 0);
    rig_tokens(folder, "b", lengths, 40, 1000);
    rig_init(&r, NULL, T);
    r.data.order = ORDER_megatron;
    r.options.run_rows = 90;
    rig_add(&r, test_path(folder, "a"), 2), rig_add(&r, test_path(folder, "b"), 1);
    check_rows(&r, 90, 11);
    rig_release(&r);
}

/* Sequence 1 has an ID outside the vocabulary. */
TEST(spans_in_megatrons_order_mark_bad_sequences)
{
    const char *folder = test_folder();
    const struct token_row *row;
    uint64_t number;
    struct rig r;
    int skipped = 0;
    rig_tokens(folder, "t", (int[]){10, 8}, 2, 0);
    rig_init(&r, NULL, 8);
    r.data.order = ORDER_megatron;
    r.data.on_bad_record = ON_BAD_RECORD_skip;
    r.data.bad_record_limit = 1;
    r.options.run_rows = 2, r.options.vocab_size = 15, r.options.lists_spans = true;
    rig_add(&r, test_path(folder, "t"), 1);
    struct loader *l = rig_open(&r);
    for (int g = 0; g < 2; g++) {
        CHECK_STATUS(OK, loader_next_tokens(l, &row, &number));
        for (size_t i = 0; i < row->spans->count; i++) {
            const struct token_span *x = &row->spans->items[i];
            for (int k = x->begin; k < x->begin + x->count; k++)
                CHECK(x->is_skipped ? row->ids[k] == 0
                                    : row->ids[k] == (int)x->first + k - x->begin);
            CHECK(!x->is_skipped || x->at == 1);
            skipped += x->is_skipped;
        }
    }
    CHECK(skipped > 0);
    loader_close(l);
    rig_release(&r);
}

TEST(spans_end_with_a_single_pass)
{
    const struct token_row *row;
    uint64_t number;
    struct rig r;
    const char *folder = test_folder();
    rig_init(&r, NULL, T);
    rig_tokens(folder, "t", (int[]){T + 1, 3}, 2, 0);
    rig_add(&r, test_path(folder, "t"), 1);
    r.options.once = r.options.lists_spans = true;
    struct loader *l = rig_open(&r);
    CHECK_STATUS(OK, loader_next_tokens(l, &row, &number));
    CHECK(row->spans->count == 1 && row->spans->items[0].count == T + 1);
    CHECK_STATUS(OK, loader_next_tokens(l, &row, &number));
    CHECK(row->filled == 4 && row->spans->count == 2);
    CHECK(row->spans->items[0].first == T && row->spans->items[0].at == 0);
    CHECK(row->spans->items[1].first == 0 && row->spans->items[1].count == 3);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(OK, loader_next_tokens(l, &row, &number));
        CHECK(!row);
    }
    loader_close(l);
    rig_release(&r);
}

TEST(spans_join_only_if_they_continue_each_other)
{
    struct token_spans s = {0};
    struct token_span x = {.count = 3, .at = 5, .first = 2};
    token_spans_add(&s, &x);
    x.begin = 3, x.first = 5;
    token_spans_add(&s, &x);
    CHECK(s.count == 1 && s.items[0].count == 6);
    x.begin = 6, x.first = 5; /* the same document again */
    token_spans_add(&s, &x);
    x.begin = 9, x.first = 8, x.file = 1;
    token_spans_add(&s, &x);
    x.begin = 12, x.count = 0;
    token_spans_add(&s, &x);
    CHECK(s.count == 3 && s.items[1].first == 5 && s.items[2].file == 1);
    token_spans_release(&s);
}
