// SPDX-License-Identifier: Apache-2.0
#include "data/row_ranges.h"

#include "data/rig.h"

#include <stdlib.h>

enum { ROWS = 40 };

static void check_ranges(const struct row_ranges *r, const bool *in)
{
    uint64_t row = 0;
    for (size_t i = 0; i < r->count; i++) {
        CHECK(i == 0 || r->items[i].begin > r->items[i - 1].end);
        for (; row < r->items[i].begin; row++) CHECK(!in[row]);
        for (; row < r->items[i].end; row++) CHECK(in[row]);
    }
    for (; row < ROWS; row++) CHECK(!in[row]);
}

/* Compares with an array of booleans, over many orders of adding. */
TEST(row_ranges_are_the_union_of_what_was_added)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct row_ranges r = {0};
        bool in[2 * ROWS] = {0};
        uint64_t bits = seed;
        for (int k = 0; k < 12; k++) {
            bits = bits * UINT64_C(6364136223846793005) + 1442695040888963407u;
            uint64_t begin = (bits >> 33) % (ROWS - 5), len = (bits >> 50) % 5;
            row_ranges_add(&r, (struct row_interval){begin, begin + len});
            memset(in + begin, true, len);
            check_ranges(&r, in);
        }
        for (uint64_t first = 0; first < ROWS; first++)
            for (uint64_t n = 0, row = first; row < ROWS; row++)
                if (!in[row]) CHECK(row_ranges_outside(&r, first, n++) == row);
        uint64_t rows = 0;
        for (int i = 0; i < ROWS; i++) rows += in[i];
        CHECK(row_ranges_rows(&r) == rows);
        struct row_ranges part = {0};
        row_ranges_add_part(&part, &r, (struct row_interval){10, 25});
        for (int i = 0; i < ROWS; i++) in[i] &= i >= 10 && i < 25;
        check_ranges(&part, in);
        row_ranges_release(&part);
        row_ranges_release(&r);
    }
}

TEST(row_ranges_are_written_with_their_last_row_and_read_back)
{
    struct row_ranges r = {0}, again = {0};
    struct text t = {0};
    struct json *json;
    row_ranges_add(&r, (struct row_interval){8, 16});
    row_ranges_add(&r, (struct row_interval){3, 4});
    struct json_writer w = {.text = &t};
    json_begin_object(&w, NULL, JSON_COMPACT);
    row_ranges_write(&r, "rows", &w);
    row_ranges_write(&(struct row_ranges){0}, "none", &w);
    json_end_object(&w);
    json_finish(&w);
    CHECK(!strcmp(t.data, "{\"rows\":[[3,3],[8,15]]}"));
    CHECK_STATUS(OK, json_parse(t.data, t.len, "rows", &json));
    CHECK_STATUS(OK, row_ranges_read(&again, json_get(json, "rows")));
    CHECK(again.count == 2 && again.items[1].begin == 8 && again.items[1].end == 16);
    CHECK_STATUS(OK, row_ranges_read(&again, json_get(json, "rows"))); /* replaces the list */
    CHECK(again.count == 2);
    CHECK_STATUS(OK, row_ranges_read(&again, NULL));
    CHECK(again.count == 0 && !again.items);
    json_free(json);
    static const char *const bad[] = {"3",        "[[1]]",     "[[2,1]]",
                                      "[[-1,2]]", "[[1,2,3]]", "[[1,\"2\"]]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(OK, json_parse(bad[i], strlen(bad[i]), "rows", &json));
        CHECK_STATUS(DATA, row_ranges_read(&again, json));
        json_free(json);
    }
    row_ranges_release(&r), row_ranges_release(&again);
    text_release(&t);
}

static void resume(struct loader *l, const struct text *cursor)
{
    struct json *json;
    CHECK_STATUS(OK, json_parse(cursor->data, cursor->len, "cursor", &json));
    CHECK_STATUS(OK, loader_load(l, json));
    json_free(json);
}

/* Of every kind of source: rows 16 to 31 and 40 to 47 are skipped, and a
 * cursor from anywhere continues with the same rows. */
TEST(loader_skips_rows_and_no_others)
{
    enum { T = 50, V = 8, AFTER = 64 };
    for (int kind = 0; kind < RIG_KINDS; kind++) {
        struct rig r;
        struct rows want = {0}, got = {0};
        rig_init(&r, "bytes", T);
        r.data.streams = V;
        r.data.shuffle_window = 3;
        rig_add_kind(&r, test_folder(), kind);
        want = rows_of(&r, 1, AFTER + 24);
        for (int prefetch = 0; prefetch < 2; prefetch++)
            for (int stop = 0; stop <= 40; stop += 8) {
                struct text cursor = {0};
                r.options.prefetch_rows = 5 * prefetch;
                struct loader *l = rig_open(&r);
                loader_skip(l, (struct row_interval){40, 48});
                loader_skip(l, (struct row_interval){16, 32});
                got.count = 0;
                rows_read(&got, l, T, 2, stop);
                loader_save(l, &(struct json_writer){.text = &cursor});
                loader_close(l);
                l = rig_open(&r);
                resume(l, &cursor);
                loader_skip(l, (struct row_interval){16, 32});
                loader_skip(l, (struct row_interval){40, 48});
                rows_read(&got, l, T, 2, AFTER - stop);
                CHECK(loader_position(l) == AFTER + 24 && got.count == AFTER);
                CHECK(loader_delivered_row(l, 0, 1) == AFTER + 23);
                loader_close(l);
                rows_check_same(&want, 0, &got, 0, 16);
                rows_check_same(&want, 32, &got, 16, 8);
                rows_check_same(&want, 48, &got, 24, AFTER - 24);
                CHECK(!!strstr(cursor.data, "\"passed_over\": ") == (stop >= 16));
                text_release(&cursor);
            }
        rows_release(&want), rows_release(&got);
        rig_release(&r);
    }
}

TEST(cursor_records_skipped_rows_and_rejects_a_stream_at_another_row)
{
    enum { T = 50 };
    struct rig r;
    struct rows rows = {0};
    struct text cursor = {0}, again = {0};
    struct json *json;
    rig_init(&r, "bytes", T);
    r.data.streams = 2;
    rig_add_kind(&r, test_folder(), 0);
    struct loader *l = rig_open(&r);
    rows_read(&rows, l, T, 4, 12);
    loader_record_skipped(l, (struct row_interval){4, 8});
    loader_record_skipped(l, (struct row_interval){6, 12});
    loader_save(l, &(struct json_writer){.text = &cursor});
    CHECK(strstr(cursor.data, "\"next_row\": 12, \"passed_over\": [[4,11]]"));
    loader_close(l);
    l = rig_open(&r);
    resume(l, &cursor);
    loader_save(l, &(struct json_writer){.text = &again});
    CHECK(!strcmp(again.data, cursor.data));
    loader_close(l);
    static const char *const next[] = {"10", "30", "1000000000000000"};
    for (size_t i = 0; i < 3; i++) {
        const char *key = "\"next_row\": ", *at = strstr(cursor.data, key) + strlen(key);
        text_clear(&again);
        text_add(&again, cursor.data, (size_t)(at - cursor.data));
        text_addf(&again, "%s%s", next[i], strchr(at, ','));
        l = rig_open(&r);
        CHECK_STATUS(OK, json_parse(again.data, again.len, "cursor", &json));
        CHECK_STATUS(DATA, loader_load(l, json));
        CHECK_MESSAGE("stream 0 is damaged: at its row 6, expected");
        json_free(json);
        loader_close(l);
    }
    text_release(&cursor), text_release(&again);
    rows_release(&rows);
    rig_release(&r);
}
