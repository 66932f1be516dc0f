/* test_source_positions.c -- a position continues in every source while weights, rows and the set
 * of sources change. */
// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

#include "base/json.h"
#include "data/source_positions.h"

enum { SOURCES = 4, DOCUMENTS = 900, IDS = 100000, STREAMS = 4, SEGMENTS = 25 };

static const char *const names[SOURCES] = {"web", "books", "code", "math"};

/* Tokens of one source in one stream, in the order in which they were read. */
struct sequence {
    int32_t *ids;
    size_t count;
};

/* Four sources of documents of 1 to 40 tokens; IDs of source s count up from s * IDS. */
struct world {
    const char *paths[SOURCES];
    struct sequence expected[SOURCES][STREAMS], seen[SOURCES][STREAMS];
};

static void add(struct sequence *s, int32_t id)
{
    s->ids = heap_grow(s->ids, s->count + 1, sizeof *s->ids);
    s->ids[s->count++] = id;
}

static void world_open(struct world *w)
{
    const char *folder = test_folder();
    int lengths[DOCUMENTS];
    *w = (struct world){0};
    for (int s = 0; s < SOURCES; s++) {
        for (int d = 0; d < DOCUMENTS; d++) lengths[d] = 1 + (d * 7 + s) % 40;
        rig_tokens(folder, names[s], lengths, DOCUMENTS, s * IDS);
        w->paths[s] = test_path(folder, names[s]);
    }
}

static void world_close(struct world *w)
{
    for (int s = 0; s < SOURCES; s++)
        for (int v = 0; v < STREAMS; v++) free(w->expected[s][v].ids), free(w->seen[s][v].ids);
}

/* What a run reads between two changes. */
struct segment {
    int order[SOURCES], count; /* the sources, by number */
    double weights[SOURCES];   /* of each number */
    int seq_len, rows;
    bool overlap;
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Reads a segment from the cursor, which becomes the one after it; empty: from the start. */
static void read_segment(const struct world *w, const struct segment *g, struct text *cursor,
                         struct sequence to[SOURCES][STREAMS])
{
    struct rig r;
    struct rows rows = {0};
    struct json *json = NULL;
    rig_init(&r, NULL, g->seq_len);
    r.data.streams = STREAMS, r.data.shuffle_window = 8, r.data.row_overlap = g->overlap;
    r.options.vocab_size = SOURCES * IDS;
    for (int i = 0; i < g->count; i++) {
        rig_add(&r, w->paths[g->order[i]], g->weights[g->order[i]]);
        r.sources[i].name = names[g->order[i]];
    }
    struct loader *l = rig_open(&r);
    if (cursor->len) {
        CHECK_STATUS(OK, json_parse(cursor->data, cursor->len, "cursor", &json));
        CHECK_STATUS(OK, loader_load(l, json));
        json_free(json);
    }
    uint64_t first = loader_position(l);
    rows_read(&rows, l, g->seq_len, 1, g->rows);
    for (int64_t i = 0; i < rows.count * g->seq_len; i++) {
        uint64_t row = first + (uint64_t)(i / g->seq_len);
        add(&to[rows.ids[i] / IDS][row % STREAMS], rows.ids[i]);
    }
    text_clear(cursor);
    loader_save(l, &(struct json_writer){.text = cursor});
    loader_close(l);
    rows_release(&rows);
    rig_release(&r);
}

/* What each source alone gives to each stream, if the first three are there from the start and
 * the fourth comes later. */
static void read_expected(struct world *w)
{
    for (int s = 0; s < SOURCES; s++) {
        struct text cursor = {0};
        struct segment g = {.order = {0, 1, 2, 3}, .count = 3, .seq_len = 1, .weights = {1, 1, 1}};
        read_segment(w, &g, &cursor, w->expected);
        g.count = 4, g.rows = STREAMS * 3500, g.overlap = true;
        memset(g.weights, 0, sizeof g.weights);
        g.weights[s] = 1;
        read_segment(w, &g, &cursor, w->expected);
        text_release(&cursor);
    }
}

/* All that was read of the source is the beginning of what it has, in its order.  Where a row
 * ended without overlap a token may be missing, which was its last label, and where a source left
 * the rest of a document. */
static void check_source(const struct world *w, int s, bool is_exact)
{
    for (int v = 0; v < STREAMS; v++) {
        const struct sequence *seen = &w->seen[s][v], *all = &w->expected[s][v];
        size_t at = 0, missing = 0;
        for (size_t i = 0; i < seen->count; i++, at++) {
            while (at < all->count && all->ids[at] != seen->ids[i]) at++, missing++;
            if (at == all->count) fail_msg("%s, stream %d: token %zu is repeated", names[s], v, i);
        }
        if (is_exact) CHECK(missing == 0);
    }
}

/* Reads SEGMENTS segments; `change` draws each from the one before. */
static void walk(uint64_t seed, bool is_exact,
                 void (*change)(struct segment *g, uint64_t *state, int number))
{
    struct world w;
    struct text cursor = {0};
    uint64_t state = seed;
    struct segment g = {.order = {0, 1, 2, 3}, .count = 3, .seq_len = 8, .overlap = true};
    world_open(&w);
    read_expected(&w);
    for (int i = 0; i < SOURCES; i++) g.weights[i] = 1;
    for (int k = 0; k < SEGMENTS; k++) {
        g.rows = (int)(next_random(&state) % 60);
        read_segment(&w, &g, &cursor, w.seen);
        g.seq_len = 1 + (int)(next_random(&state) % 30);
        change(&g, &state, k);
    }
    for (int s = 0; s < SOURCES; s++) check_source(&w, s, is_exact);
    text_release(&cursor);
    world_close(&w);
}

/* Weights and the order of the sources change, the fourth comes after the first segment, and none
 * leaves. */
static void reweigh(struct segment *g, uint64_t *state, int number)
{
    g->count = SOURCES;
    for (int i = 0; i < SOURCES; i++) g->weights[i] = (double)(next_random(state) % 3);
    g->weights[next_random(state) % SOURCES] = 1;
    int a = (int)(next_random(state) % SOURCES), b = (int)(next_random(state) % SOURCES);
    int kept = g->order[a];
    if (!number) return;
    g->order[a] = g->order[b], g->order[b] = kept;
}

TEST(sources_continue_across_weights_and_rows_without_a_token_lost)
{
    for (uint64_t seed = 1; seed <= 6; seed++) walk(seed, true, reweigh);
}

/* Sources leave and come back, and rows overlap or not. */
static void replace(struct segment *g, uint64_t *state, int number)
{
    (void)number;
    g->overlap = next_random(state) % 2;
    g->count = 0;
    for (int i = 0; i < SOURCES; i++)
        if (next_random(state) % 2) g->order[g->count++] = i;
    if (!g->count) g->order[g->count++] = (int)(next_random(state) % SOURCES);
}

TEST(sources_that_leave_and_come_back_read_no_token_twice)
{
    for (uint64_t seed = 1; seed <= 6; seed++) walk(seed, false, replace);
}

TEST(a_source_that_is_back_with_other_content_is_refused)
{
    struct world w;
    struct text cursor = {0};
    struct segment g = {.order = {0, 1}, .count = 2, .seq_len = 8, .rows = 20, .weights = {1, 1}};
    world_open(&w);
    read_segment(&w, &g, &cursor, w.seen);
    g.count = 1;
    read_segment(&w, &g, &cursor, w.seen);
    CHECK(strstr(cursor.data, "\"label\": \"books\""));
    w.paths[1] = w.paths[2]; /* under the same name */
    struct rig r;
    struct json *json;
    rig_init(&r, NULL, 8);
    r.data.streams = STREAMS, r.data.shuffle_window = 8;
    r.options.vocab_size = SOURCES * IDS;
    for (int i = 0; i < 2; i++) {
        rig_add(&r, w.paths[i], 1);
        r.sources[i].name = names[i];
    }
    struct loader *l = rig_open(&r);
    CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &json));
    CHECK_STATUS(CONFIG, loader_load(l, json));
    CHECK_MESSAGE("books: the run has read this source before, from other files");
    json_free(json);
    loader_close(l);
    rig_release(&r);
    text_release(&cursor);
    world_close(&w);
}

TEST(source_positions_are_written_read_and_found_by_label)
{
    struct source_positions p = {0}, again = {0};
    struct text t = {0};
    struct json_writer w = {.text = &t};
    struct json *json;
    for (int i = 0; i < 3; i++) {
        struct source_position *one = source_positions_add(&p, names[i], 2);
        one->identity = (struct source_identity){(uint64_t)i, 3};
        for (int k = 0; k < 2 * PARTITION_INTS; k++) one->ints[k] = 10 * i + k;
    }
    source_positions_remove(&p, 1);
    json_begin_object(&w, NULL, JSON_INLINE);
    source_positions_write(&p, 2, &w);
    json_end_object(&w);
    json_finish(&w);
    CHECK_STATUS(OK, json_parse(t.data, t.len, "positions", &json));
    CHECK_STATUS(OK, source_positions_read(&again, json_get(json, "retired_sources"), 2));
    CHECK(again.count == 2 && source_positions_find(&again, "books", -1) == SIZE_MAX);
    size_t code = source_positions_find(&again, "code", -1);
    CHECK(code == 1 && again.items[code].identity.place == 2 && again.items[code].ints[5] == 25);
    again.items[code].is_read = true;
    CHECK(source_positions_find(&again, "code", -1) == SIZE_MAX);
    for (int i = 0; i < 3; i++) source_positions_add(&again, "math", 2)->content = i;
    CHECK(source_positions_find(&again, "math", 1) == 3);
    CHECK(source_positions_find(&again, "math", 7) == 2);
    CHECK_STATUS(DATA, source_positions_read(&again, json_get(json, "retired_sources"), 3));
    json_free(json);
    text_release(&t);
    source_positions_release(&p), source_positions_release(&again);
}
