// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "metrics/memory.h"
#include "ops/cross_entropy.h"
#include "tokenizer/tokenizer_impl.h"

#include <dirent.h>

enum { BOS = 256, EOS };

/* Documents of lengths 1, 2, ..., 9, 1, ... with consecutive IDs from 0.  Returns the number of
 * IDs. */
static int add_tokens(struct rig *r, int documents)
{
    int lengths[200], total = 0;
    const char *folder = test_folder();
    for (int d = 0; d < documents; d++) total += lengths[d] = 1 + d % 9;
    rig_tokens(folder, "t", lengths, documents, 0);
    rig_add(r, test_path(folder, "t"), 1);
    return total;
}

TEST(loader_predicts_every_token_once_per_epoch)
{
    enum { T = 6, V = 4, DOCUMENTS = 48, EPOCHS = 3 };
    struct rig r;
    rig_init(&r, NULL, T);
    r.data.streams = V;
    int total = add_tokens(&r, DOCUMENTS), *seen = heap((size_t)total * sizeof *seen);
    struct rows rows = rows_of(&r, 3, 2 * EPOCHS * total / T);
    for (int s = 0; s < V; s++) {
        int num_ids = 0, n = 0;
        for (int d = s * DOCUMENTS / V; d < (s + 1) * DOCUMENTS / V; d++) num_ids += 1 + d % 9;
        /* the tokens of the stream: its first input, then every label */
        for (int64_t at = (int64_t)s * T, i = -1; n < EPOCHS * num_ids; n++) {
            int32_t id = i < 0 ? rows.ids[at] : rows.labels[at + i];
            CHECK(id >= 0 && id < total && seen[id]++ == n / num_ids);
            if (++i == T) i = 0, at += V * T;
        }
    }
    for (int id = 0; id < total; id++) CHECK(seen[id] == EPOCHS);
    free(seen);
    rows_release(&rows);
    rig_release(&r);
}

TEST(loader_knows_the_epoch_that_its_rows_have_begun)
{
    enum { T = 6, B = 2, DOCUMENTS = 48 };
    struct rig r;
    struct rows rows = {0};
    rig_init(&r, NULL, T);
    r.data.streams = 1;
    int total = add_tokens(&r, DOCUMENTS);
    struct loader *l = rig_open(&r);
    CHECK(loader_epoch(l, 0) == 0);
    for (int64_t read = B; read * T < 5 * total; read += B) {
        rows_read(&rows, l, T, B, B);
        /* the tokens of the rows, and the label after the last one */
        CHECK(loader_epoch(l, 0) == (uint64_t)(read * T / total));
    }
    CHECK(loader_epoch(l, 0) == 4);
    loader_close(l);
    rows_release(&rows);
    rig_release(&r);
}

TEST(loader_labels_are_the_next_inputs_even_across_rows)
{
    enum { T = 5, V = 3 };
    for (int overlap = 0; overlap < 2; overlap++) {
        struct rig r;
        rig_init(&r, NULL, T);
        r.data.streams = V;
        r.data.shuffle_window = 1;
        r.data.row_overlap = overlap;
        int total = add_tokens(&r, 30);
        struct rows rows = rows_of(&r, 2, 3 * V);
        CHECK(rows.count == 3 * V && rows.valid == 3 * V * T && rows.bytes == 0);
        for (int64_t g = 0; g < rows.count; g++) {
            const int32_t *ids = rows.ids + g * T, *labels = rows.labels + g * T;
            for (int t = 0; t < T; t++) CHECK(labels[t] == ids[t] + 1);
            /* torchtitan's rows begin after the last label of the previous row */
            if (g >= V) CHECK(ids[0] == (ids - V * T)[0] + T + !overlap);
            if (g < V) CHECK(ids[0] <= total * g / V);
        }
        rows_release(&rows);
        rig_release(&r);
    }
}

TEST(loader_adds_bos_and_eos_to_documents)
{
    static const char lines[] = "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n";
    static const int32_t want[5][8] = {{'a', 'b', 'c', 'a', 'b', 'c', 'a', 'b'},
                                       {'a', 'b', EOS, 'c', EOS, 'a', 'b', EOS},
                                       {BOS, 'a', 'b', BOS, 'c', BOS, 'a', 'b'},
                                       {BOS, 'a', 'b', EOS, BOS, 'c', EOS, BOS},
                                       {BOS, 'a', 'b', BOS, 'c', BOS, 'a', 'b'}};
    const char *path = rig_text(test_folder(), "a.jsonl", lines);
    for (int k = 0; k < 5; k++) { /* the last one: EOS is BOS */
        struct rig r;
        rig_init(&r, "bytes", 8);
        r.data.streams = r.data.shuffle_window = 1;
        r.data.bos = k >= 2, r.data.eos = k & 1 || k == 4;
        if (k == 4) r.tokenizer->eos = BOS;
        rig_add(&r, path, 1);
        struct rows rows = rows_of(&r, 1, 1);
        CHECK(!memcmp(rows.ids, want[k], sizeof want[k]));
        rows_release(&rows);
        rig_release(&r);
    }
}

TEST(loader_warns_if_the_tokenizer_has_no_bos_or_eos)
{
    const char *folder = test_folder(), *log = test_path(folder, "log");
    const char *path = rig_text(folder, "a.jsonl", "{\"text\": \"ab\"}\n");
    struct text lines = {0};
    for (int k = 0; k < 4; k++) {
        struct rig r;
        rig_init(&r, "bytes", 8);
        r.data.streams = 1;
        r.data.bos = k == 1, r.data.eos = k != 3;
        if (k) r.tokenizer->bos = -1;
        if (k > 1) r.tokenizer->eos = -1;
        rig_add(&r, path, 1);
        CHECK_STATUS(OK, log_open(log));
        loader_close(rig_open(&r));
        CHECK_STATUS(OK, log_open(NULL));
        CHECK_STATUS(OK, file_read(log, 1 << 20, &lines));
        CHECK(!strstr(lines.data, "the tokenizer has no begin-of-text token") == (k != 1));
        CHECK(!strstr(lines.data, "data.eos = true, but the tokenizer has no end") == (k != 2));
        CHECK_STATUS(OK, file_write(log, "", 0));
        rig_release(&r);
    }
    text_release(&lines);
}

TEST(loader_rows_do_not_depend_on_readers_or_prefetch)
{
    enum { T = 12, V = 8, ROWS = 96 };
    static const struct {
        int readers, ahead, B;
    } cases[] = {{1, 0, 5}, {1, 1, 3}, {1, 7, 4}, {1, 500, 96}, {2, 0, 2}, {4, 3, 6}, {8, 2, 1}};
    for (int n = 0; n < 2 * RIG_KINDS; n++) {
        int kind = n % RIG_KINDS;
        struct rig r;
        rig_init(&r, "bytes", T);
        r.data.streams = V;
        r.data.packing = n / RIG_KINDS;
        r.objective.name = kind % 2 ? OBJECTIVE_causal : OBJECTIVE_masked;
        rig_add_kind(&r, test_folder(), kind);
        struct rows want = rows_of(&r, 1, ROWS);
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            r.options.num_readers = cases[c].readers;
            r.options.prefetch_rows = cases[c].ahead;
            for (int reader = 0; reader < cases[c].readers; reader++) {
                r.options.reader = reader;
                struct rows got = rows_of(&r, cases[c].B, ROWS / cases[c].readers);
                for (int64_t k = 0; k < got.count; k++)
                    rows_check_same(&want, reader + k * cases[c].readers, &got, k, 1);
                CHECK(got.count == ROWS / cases[c].readers);
                rows_release(&got);
            }
        }
        rows_release(&want);
        rig_release(&r);
    }
}

TEST(loader_in_a_single_pass_reads_everything_and_ends)
{
    enum { T = 7, DOCUMENTS = 31 };
    static const int batches[] = {1, 4, 100};
    for (int k = 0; k < 3; k++) {
        struct rig r;
        rig_init(&r, NULL, T);
        r.options.once = true;
        r.options.prefetch_rows = k * 3;
        int total = add_tokens(&r, DOCUMENTS);
        struct loader *l = rig_open(&r);
        struct rows rows = {0};
        rows_read(&rows, l, T, batches[k], 1000);
        CHECK(rows.count == (total - 1 + T - 1) / T && rows.valid == total - 1);
        for (int n = 0; n < total - 1; n++) CHECK(rows.ids[n] == n && rows.labels[n] == n + 1);
        for (int64_t n = total - 1; n < rows.count * T; n++) CHECK(rows.labels[n] == LABEL_IGNORED);
        rows_read(&rows, l, T, 2, 2); /* still at the end */
        CHECK(rows.count == (total - 1 + T - 1) / T && rows.valid == total - 1);
        loader_close(l);
        rows_release(&rows);
        rig_release(&r);
    }
}

/* Marks the IDs that a single pass yields. */
static void mark_ids(struct rig *r, int by, unsigned char *seen)
{
    r->options.once = true;
    struct rows rows = rows_of(r, 4, 10000);
    for (int64_t i = 0; i < rows.count * rows.T; i++)
        if (i == 0 || rows.labels[i - 1] != LABEL_IGNORED) seen[rows.ids[i]] |= (unsigned char)by;
    rows_release(&rows);
}

TEST(loader_splits_documents_into_training_and_validation)
{
    enum { DOCUMENTS = 180 };
    struct rig r;
    rig_init(&r, NULL, 8);
    r.data.validation_share = 0.25;
    int total = add_tokens(&r, DOCUMENTS), held = 0, id = 0;
    unsigned char *seen = heap((size_t)total);
    mark_ids(&r, 1, seen);
    r.options.validation = true;
    mark_ids(&r, 2, seen);
    for (int d = 0; d < DOCUMENTS; d++) {
        held += seen[id] == 2;
        for (int i = 1; i < 1 + d % 9; i++) CHECK(seen[id + i] == seen[id]);
        CHECK(seen[id] == 1 || seen[id] == 2);
        id += 1 + d % 9;
    }
    CHECK(held > DOCUMENTS / 8 && held < DOCUMENTS / 2);
    /* shuffled training rows contain no held-out document */
    r.options.once = r.options.validation = false;
    struct rows rows = rows_of(&r, 4, 300);
    for (int64_t i = 0; i < rows.count * rows.T; i++) CHECK(seen[rows.ids[i]] == 1);
    rows_release(&rows);
    free(seen);
    rig_release(&r);
}

TEST(loader_lowers_the_streams_if_documents_are_few)
{
    struct text lines = {0}, packed = {0};
    const char *folder = test_folder();
    text_adds(&lines, "{\"text\": \"");
    for (int i = 0; i < 2000; i++) text_adds(&lines, "one long line ");
    text_adds(&lines, "\"}\n{\"text\": \"short\"}\n\n\n{\"text\": \"s\"}\n");
    rig_gzip(&packed, lines.data, lines.len);
    const char *paths[] = {rig_text(folder, "a.jsonl", lines.data),
                           rig_bytes(folder, "a.jsonl.gz", packed.data, packed.len),
                           rig_text(folder, "tiny.txt", "x"),
                           rig_text(folder, "one.jsonl", "{\"text\": \"y\"}")};
    for (int i = 0; i < 4; i++) {
        struct rig r;
        rig_init(&r, "bytes", 64); /* longer than the smallest sources */
        r.data.streams = 256;
        rig_add(&r, paths[i], 1);
        struct rows rows = rows_of(&r, 8, 40);
        CHECK(rows.count == 40 && rows.valid == 40 * 64);
        rows_release(&rows);
        rig_release(&r);
    }
    text_release(&lines), text_release(&packed);
}

/* Few streams serve many readers, so the ring is large. */
TEST(loader_that_only_counts_its_memory_has_no_prefetch_ring)
{
    int64_t bytes[2];
    struct rig r;
    rig_init(&r, NULL, 16);
    add_tokens(&r, 48);
    r.data.streams = 4;
    r.options.prefetch_rows = 2, r.options.num_readers = 100;
    for (int i = 0; i < 2; i++) {
        r.options.is_sizing = i;
        struct loader *l = rig_open(&r);
        bytes[i] = loader_memory_bytes(l);
        loader_close(l);
    }
    CHECK(bytes[0] == bytes[1]);
    r.options.num_readers = 1 << 20;
    int64_t before = memory_resident_bytes();
    struct loader *l = rig_open(&r);
    CHECK(memory_resident_bytes() - before < 16 << 20);
    CHECK(loader_memory_bytes(l) > INT64_C(2) * (1 << 18) * 16 * 21);
    loader_close(l);
    rig_release(&r);
}

static void check_open_fails(struct rig *r, enum status want, const char *why)
{
    struct loader *l = NULL;
    r->data.sources = r->sources;
    r->options.data = &r->data;
    r->options.objective = &r->objective;
    enum status got = loader_open(&l, &r->options);
    if (got != want) fail_msg("%s: %s", status_name(got), got ? status_message() : "");
    CHECK(!l);
    CHECK_MESSAGE(why);
    r->data.num_sources = 0;
}

TEST(loader_rejects_sources_without_documents)
{
    struct rig r;
    struct text packed = {0};
    const char *folder = test_folder();
    rig_init(&r, "bytes", 8);
    check_open_fails(&r, STATUS_CONFIG, "no [[data.source]]");
    rig_add(&r, test_path(folder, "none.jsonl"), 1);
    check_open_fails(&r, STATUS_MISSING, "none.jsonl: no such file");
    rig_add(&r, rig_text(folder, "empty.txt", ""), 1);
    check_open_fails(&r, STATUS_DATA, "empty.txt: the source is empty");
    rig_add(&r, rig_text(folder, "blank.jsonl", "\n\r\n  \n"), 1);
    check_open_fails(&r, STATUS_DATA, "blank.jsonl: the source has no document");
    rig_zstd(&packed, "\n\n", 2);
    rig_add(&r, rig_bytes(folder, "blank.jsonl.zst", packed.data, packed.len), 1);
    check_open_fails(&r, STATUS_DATA, "blank.jsonl.zst: the source has no document");
    rig_tokens(folder, "t", (int[]){0, 0}, 2, 0);
    rig_add(&r, test_path(folder, "t"), 1);
    check_open_fails(&r, STATUS_DATA, "t: the source has no document");
    text_release(&packed);
    rig_release(&r);
}

TEST(loader_rejects_conflicting_settings)
{
    struct rig r;
    const char *folder = test_folder();
    const char *path = rig_text(folder, "a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    rig_init(&r, "bytes", 8);
    rig_add(&r, path, 1);
    r.options.vocab_size = 258;
    check_open_fails(&r, STATUS_CONFIG,
                     "the tokenizer has 259 tokens, more than model.vocab_size = 258");
    r.options.vocab_size = 0;
    rig_add(&r, path, 1);
    r.objective.name = OBJECTIVE_masked, r.objective.mask_token = "<|none|>";
    check_open_fails(&r, STATUS_CONFIG, "objective.mask_token = \"<|none|>\"");
    rig_release(&r);
    rig_init(&r, NULL, 8);
    add_tokens(&r, 4);
    r.objective.name = OBJECTIVE_masked;
    check_open_fails(&r, STATUS_CONFIG, "objective.name = \"masked\" requires data.tokenizer");
    r.objective.name = OBJECTIVE_diffusion, r.data.num_sources = 1;
    check_open_fails(&r, STATUS_CONFIG, "objective.name = \"diffusion\" requires data.tokenizer");
}

TEST(loader_reports_failures_of_its_prefetch_thread)
{
    enum { T = 4 };
    struct text lines = {0};
    rig_lines(&lines, "good", 40);
    text_adds(&lines, "{\"text\": 7}\n");
    const char *path = rig_text(test_folder(), "a.jsonl", lines.data);
    int32_t room[4][2 * T];
    int64_t good[2];
    for (int ahead = 0; ahead < 2; ahead++) {
        struct rig r;
        struct batch b = {.B = 2,
                          .T = T,
                          .ids_BT = room[0],
                          .labels_BT = room[1],
                          .start_BT = room[2],
                          .end_BT = room[3]};
        int rows;
        enum status st = STATUS_OK;
        rig_init(&r, "bytes", T);
        r.data.streams = 1;
        r.options.prefetch_rows = ahead * 50;
        rig_add(&r, path, 1);
        struct loader *l = rig_open(&r);
        for (good[ahead] = 0; !st; good[ahead]++) {
            CHECK(good[ahead] < 10000);
            st = loader_next(l, &b, &rows);
        }
        CHECK(st == STATUS_DATA);
        CHECK_MESSAGE("the value of \"text\" is not a string");
        CHECK(strstr(status_stack(), "stream_row"));
        CHECK_STATUS(DATA, loader_next(l, &b, &rows)); /* and on every later call */
        loader_close(l);
        rig_release(&r);
    }
    CHECK(good[0] == good[1] && good[0] > 10);
    text_release(&lines);
}

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    CHECK(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

TEST(loader_closes_its_files_and_thread_at_any_time)
{
    int before = open_files();
    const char *folder = test_folder();
    for (int k = 0; k < 3 * RIG_KINDS; k++) {
        struct rig r;
        struct rows rows = {0};
        rig_init(&r, "bytes", 8);
        rig_add_kind(&r, folder, k % RIG_KINDS);
        r.options.prefetch_rows = 1 + k * 10;
        struct loader *l = rig_open(&r);
        rows_read(&rows, l, 8, 1, k / RIG_KINDS);
        CHECK(loader_memory_bytes(l) > 0);
        loader_close(l);
        rows_release(&rows);
        rig_release(&r);
    }
    loader_close(NULL);
    CHECK(open_files() == before);
}

/* Opens a loader and restores the cursor. */
static struct loader *resumed(struct rig *r, const struct text *cursor)
{
    struct json *root = NULL;
    struct loader *l = rig_open(r);
    CHECK_STATUS(OK, json_parse(cursor->data, cursor->len, "cursor", &root));
    CHECK_STATUS(OK, loader_load(l, root));
    json_free(root);
    return l;
}

TEST(loader_resumes_at_every_row_of_every_source_kind)
{
    enum { T = 300, V = 8, ROWS = 60, AFTER = 2 * V + 3 }; /* more than one epoch of most kinds */
    for (int n = 0; n < 2 * RIG_KINDS; n++) {
        int kind = n % RIG_KINDS;
        struct rig r;
        struct text cursors[ROWS] = {{0}}, again = {0};
        struct rows want = {0};
        rig_init(&r, "bytes", T);
        r.data.streams = V;
        r.data.packing = n / RIG_KINDS;
        r.data.shuffle_window = 3;
        r.data.validation_share = kind == 1 ? 0.3 : 0;
        r.objective.name = kind == 2 ? OBJECTIVE_masked : OBJECTIVE_causal;
        rig_add_kind(&r, test_folder(), kind);
        r.options.prefetch_rows = 10;
        struct loader *l = rig_open(&r);
        for (int g = 0; g < ROWS; g++) {
            loader_save(l, &(struct json_writer){.text = &cursors[g]});
            rows_read(&want, l, T, 1, 1);
        }
        rows_read(&want, l, T, 4, AFTER);
        loader_close(l);
        for (int g = 0; g < ROWS; g++) {
            struct rows got = {0};
            r.options.prefetch_rows = g % 3;
            l = resumed(&r, &cursors[g]);
            text_clear(&again);
            loader_save(l, &(struct json_writer){.text = &again});
            CHECK(!strcmp(again.data, cursors[g].data));
            rows_read(&got, l, T, 2, AFTER);
            rows_check_same(&want, g, &got, 0, AFTER);
            loader_close(l);
            rows_release(&got);
            text_release(&cursors[g]);
        }
        text_release(&again);
        rows_release(&want);
        rig_release(&r);
    }
}

TEST(loader_in_a_single_pass_resumes_at_every_row)
{
    enum { T = 7 };
    struct rig r;
    rig_init(&r, "bytes", T);
    rig_add_kind(&r, test_folder(), RIG_KINDS - 1);
    r.options.once = true;
    struct rows want = rows_of(&r, 5, 10000);
    struct loader *l = rig_open(&r);
    for (int64_t g = 0; g <= want.count; g++) {
        struct rows got = {0};
        if (g % 97 == 0 || g + 3 > want.count) {
            struct text cursor = {0};
            loader_save(l, &(struct json_writer){.text = &cursor});
            struct loader *other = resumed(&r, &cursor);
            rows_read(&got, other, T, 3, 10000);
            CHECK(got.count == want.count - g);
            rows_check_same(&want, g, &got, 0, got.count);
            loader_close(other);
            text_release(&cursor);
        }
        got.count = 0;
        rows_read(&got, l, T, 1, 1);
        rows_release(&got);
    }
    loader_close(l);
    rows_release(&want);
    rig_release(&r);
}
