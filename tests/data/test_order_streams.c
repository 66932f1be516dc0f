// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

#include "data/loader.h"
#include "data/order.h"

/* IDs 0, 1, 2, ... in 40 documents of 7. */
static void open_ids(struct rig *r, struct source *source, struct source_tokens *tokens)
{
    const char *folder = test_folder();
    int lengths[40];
    for (int d = 0; d < 40; d++) lengths[d] = 7;
    rig_init(r, NULL, 5);
    rig_tokens(folder, "t", lengths, 40, 0);
    rig_add(r, test_path(folder, "t"), 1);
    r->options.data = &r->data;
    CHECK_STATUS(OK, source_open(source, &r->sources[0]));
    *tokens = (struct source_tokens){.vocab_size = 280};
}

static struct order *open_order(const struct rig *r, const struct source *source,
                                const struct source_tokens *tokens)
{
    static const struct source_identity identity = {0, 1};
    struct order *o = NULL;
    CHECK_STATUS(OK, order_streams_open(&o, &(struct order_setup){.options = &r->options,
                                                                  .sources = source,
                                                                  .identities = &identity,
                                                                  .num_sources = 1,
                                                                  .tokens = tokens}));
    return o;
}

TEST(order_streams_gives_each_stream_its_own_documents_and_cursor)
{
    enum { NEED = 6, STREAMS = 4, ROWS = 3 };
    struct rig r;
    struct source source;
    struct source_tokens tokens;
    open_ids(&r, &source, &tokens);
    struct order *o = open_order(&r, &source, &tokens), *again = open_order(&r, &source, &tokens);
    CHECK(o->num_streams == STREAMS && o->block == 1 && o->cursor_ints > 0);
    for (uint64_t g = 0; g < ROWS * STREAMS; g++) {
        int32_t ids[NEED], same[NEED];
        unsigned char begins[NEED];
        struct token_row row = {NEED, ids, begins, 0, NULL},
                         same_row = {NEED, same, begins, 0, NULL};
        int64_t *cursor = heap(o->cursor_ints * sizeof *cursor);
        o->kind->save(o, g % STREAMS, cursor);
        const struct order_position at = {.next_row = g, .vocab_size = 280};
        CHECK_STATUS(OK, again->kind->load(again, g % STREAMS, cursor, &at));
        CHECK_STATUS(OK, o->kind->row(o, g, &tokens, &row));
        CHECK(row.filled == NEED);
        for (int i = 0; i < NEED; i++) {
            CHECK((uint64_t)ids[i] / 70 == g % STREAMS); /* a quarter of the documents per stream */
            if (i) CHECK(begins[i] == (ids[i] % 7 == 0));
        }
        CHECK_STATUS(OK, again->kind->row(again, g, &tokens, &same_row));
        CHECK(!memcmp(ids, same, sizeof ids));
        free(cursor);
    }
    o->kind->close(o), again->kind->close(again);
    source_close(&source);
    rig_release(&r);
}

TEST(order_streams_rejects_a_cursor_with_an_id_outside_the_vocabulary)
{
    struct rig r;
    struct source source;
    struct source_tokens tokens;
    open_ids(&r, &source, &tokens);
    struct order *o = open_order(&r, &source, &tokens);
    int64_t *cursor = heap(o->cursor_ints * sizeof *cursor);
    o->kind->save(o, 2, cursor);
    struct order_position at = {.vocab_size = 280};
    cursor[4] = 279;
    CHECK_STATUS(OK, o->kind->load(o, 2, cursor, &at));
    cursor[4] = 280;
    CHECK_STATUS(DATA, o->kind->load(o, 2, cursor, &at));
    CHECK_MESSAGE("stream 2 has token ID 280; the vocabulary size is 280");
    cursor[4] = 279;
    at.next_row = 3; /* row 2 has been read, or was skipped */
    CHECK_STATUS(DATA, o->kind->load(o, 2, cursor, &at));
    CHECK_MESSAGE("stream 2 is damaged: at its row 0, expected 1");
    at.num_skipped = 1;
    CHECK_STATUS(OK, o->kind->load(o, 2, cursor, &at));
    free(cursor);
    o->kind->close(o);
    source_close(&source);
    rig_release(&r);
}

TEST(order_streams_counts_memory_for_own_streams_with_their_packed_documents)
{
    enum { STREAMS = 4, NUMBERS = STREAMS * 8, ROW = 6 };
    struct rig r;
    struct source source;
    struct source_tokens tokens;
    int64_t bytes[3];
    open_ids(&r, &source, &tokens);
    for (int i = 0; i < 3; i++) {
        r.options.num_readers = i ? STREAMS : 1;
        r.data.packing = i == 2 ? PACKING_best_fit : PACKING_concatenate;
        struct order *o = open_order(&r, &source, &tokens);
        CHECK(o->num_streams == STREAMS && o->cursor_ints == NUMBERS / STREAMS);
        bytes[i] = o->kind->memory_bytes(o) - NUMBERS * 8;
        o->kind->close(o);
    }
    CHECK(bytes[1] > 0 && bytes[0] == STREAMS * bytes[1]);
    CHECK(bytes[2] == bytes[1] + PACKING_MOST_ROWS * ROW * 4);
    source_close(&source);
    rig_release(&r);
}

/* As in torchtitan.  With both, a token would occur twice between documents. */
TEST(a_token_that_is_bos_and_eos_only_begins_documents)
{
    static const char lines[] = "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n";
    static const char names[] = "{\"bos_token\": \"<|begin_of_text|>\","
                                "\"eos_token\": {\"content\": \"<|begin_of_text|>\"}}";
    static const int32_t want[3][8] = {{'a', 'b', 256, 'c', 256, 'a', 'b', 256},
                                       {256, 'a', 'b', 256, 'c', 256, 'a', 'b'},
                                       {256, 'a', 'b', 256, 'c', 256, 'a', 'b'}};
    const char *folder = test_folder(), *path = rig_text(folder, "a.jsonl", lines);
    struct tokenizer *bytes;
    CHECK_STATUS(OK, tokenizer_open(&bytes, "bytes", &(struct tokenizer_config){0}));
    CHECK_STATUS(OK, tokenizer_copy(bytes, folder));
    tokenizer_close(bytes);
    rig_text(folder, "tokenizer_config.json", names);
    for (int k = 0; k < 3; k++) {
        struct rig r;
        rig_init(&r, folder, 8);
        r.data.streams = r.data.shuffle_window = 1;
        r.data.bos = k != 0, r.data.eos = k != 1;
        rig_add(&r, path, 1);
        struct rows rows = rows_of(&r, 1, 1);
        CHECK(!memcmp(rows.ids, want[k], sizeof want[k]));
        rows_release(&rows);
        rig_release(&r);
    }
}
