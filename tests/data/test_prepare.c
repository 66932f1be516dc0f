// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/rng.h"
#include "data/prepare.h"
#include "data/source.h"
#include "formats/megatron.h"
#include "test.h"
#include "tokenizer/tokenizer_impl.h"

#include <unistd.h>

static struct tokenizer *bytes_tokenizer(void)
{
    struct tokenizer *t;
    CHECK_STATUS(OK, tokenizer_open(&t, "bytes", &(struct tokenizer_config){0}));
    return t;
}

/* n lines with texts of 0 to 299 letters. */
static void write_lines(const char *path, int n)
{
    struct text t = {0};
    for (int i = 0; i < n; i++) {
        text_adds(&t, "{\"id\": 1, \"text\": \"");
        size_t len = (size_t)(rng_uniform(1, 0, 0, (uint64_t)i) * 300);
        uint32_t bits = (uint32_t)i;
        char letters[300];
        for (size_t j = 0; j < len; j++) {
            bits = bits * 1664525 + 1013904223;
            letters[j] = (char)('a' + (bits >> 16) % 26);
        }
        text_add(&t, letters, len);
        text_adds(&t, "\"}\n");
    }
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&t);
}

/* Prepares the text with the tokenizer "bytes", as the request's other fields say. */
static enum status run_request(struct prepare_request p, const char *source,
                               struct prepare_stats *done)
{
    struct tokenizer *t = bytes_tokenizer();
    struct source_config config = {.path = source, .column = "text", .weight = 1};
    p.sources = &config, p.num_sources = 1;
    p.tokenizer = t;
    p.eos = true;
    enum status st = prepare_token_files(&p, done);
    tokenizer_close(t);
    return st;
}

static enum status run(const char *source, const char *prefix, int threads, bool force,
                       struct prepare_stats *done)
{
    const struct prepare_request p = {.prefix = prefix, .force = force, .threads = threads};
    return run_request(p, source, done);
}

/* Accepts that the files of this name have changed. */
static enum status run_accepting(const char *source, const char *prefix, const char *accepted,
                                 struct prepare_stats *done)
{
    const struct prepare_request p = {
        .prefix = prefix, .threads = 1, .accept_changed = {&accepted, 1}};
    return run_request(p, source, done);
}

static void check_same(const char *a, const char *b)
{
    static const char *const suffixes[] = {".bin", ".idx"};
    for (int i = 0; i < 2; i++) {
        struct text name[2] = {0}, bytes[2] = {0};
        text_addf(&name[0], "%s%s", a, suffixes[i]), text_addf(&name[1], "%s%s", b, suffixes[i]);
        for (int j = 0; j < 2; j++) CHECK_STATUS(OK, file_read(name[j].data, 1 << 30, &bytes[j]));
        CHECK(bytes[0].len == bytes[1].len);
        CHECK(!memcmp(bytes[0].data, bytes[1].data, bytes[0].len));
        for (int j = 0; j < 2; j++) text_release(&name[j]), text_release(&bytes[j]);
    }
}

TEST(prepare_writes_the_ids_that_training_would_read)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    const char *prefix = test_path(folder, "a");
    struct prepare_stats done;
    write_lines(text, 1000);
    CHECK_STATUS(OK, run(text, prefix, 2, false, &done));

    struct tokenizer *t = bytes_tokenizer();
    struct source raw, tokens;
    struct source_config raw_config = {.path = text, .column = "text", .weight = 1};
    struct source_config tokens_config = {.path = prefix, .column = "text", .weight = 1};
    struct source_tokens how = {.tokenizer = t, .vocab_size = 259, .eos = true};
    struct token_list want = {0}, got = {0};
    struct source_document f = {0}, g = {0};
    uint64_t documents = 0;
    CHECK_STATUS(OK, encoder_make(&how.encoder, t));
    CHECK_STATUS(OK, source_open(&raw, &raw_config));
    CHECK_STATUS(OK, source_open(&tokens, &tokens_config));
    struct source_range raw_cursor = source_part(&raw, 0, 1), cursor = source_part(&tokens, 0, 1);
    for (bool none = false;;) {
        CHECK_STATUS(OK, source_find(&raw, NULL, &raw_cursor, &f, &none));
        if (none) break;
        want.count = got.count = 0;
        CHECK_STATUS(OK, source_read(&raw, &f, &how, &want));
        if (!want.count) continue; /* an empty text */
        CHECK_STATUS(OK, source_find(&tokens, NULL, &cursor, &g, &none));
        CHECK(!none);
        CHECK_STATUS(OK, source_read(&tokens, &g, &how, &got));
        CHECK(got.count == want.count && !memcmp(got.ids, want.ids, got.count * sizeof *got.ids));
        documents++;
    }
    CHECK(documents > 900 && documents == done.documents && documents == tokens.num_positions);
    CHECK(done.token_bytes == 2);
    source_close(&raw), source_close(&tokens);
    encoder_free(how.encoder);
    text_release(&how.text), text_release(&f.text), text_release(&g.text);
    token_list_release(&want), token_list_release(&got);
    tokenizer_close(t);
}

TEST(prepare_output_does_not_depend_on_threads)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    const char *one = test_path(folder, "one"), *five = test_path(folder, "five");
    struct prepare_stats done;
    write_lines(text, 40000); /* several batches for one thread */
    CHECK_STATUS(OK, run(text, one, 1, false, &done));
    CHECK_STATUS(OK, run(text, five, 5, false, &done));
    CHECK(done.text_total - done.text_bytes == 40000); /* line breaks */
    check_same(one, five);
}

TEST(prepare_resumes_an_interrupted_run)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    const char *straight = test_path(folder, "straight"), *resumed = test_path(folder, "resumed");
    struct prepare_stats done;
    struct text bytes = {0};
    write_lines(text, 80000);
    CHECK_STATUS(OK, run(text, straight, 1, false, &done));
    CHECK(done.text_resumed == 0);
    CHECK_STATUS(OK, file_read(text, 1 << 30, &bytes));
    bytes.data[bytes.len - 3] = 'x'; /* in the last line: "} becomes x} */
    CHECK_STATUS(OK, file_write(text, bytes.data, bytes.len));
    CHECK_STATUS(RECORD, run(text, resumed, 1, false, &done));
    CHECK_MESSAGE("a.jsonl");
    CHECK(!file_exists(test_path(folder, "resumed.idx")));
    bytes.data[bytes.len - 3] = '"';
    CHECK_STATUS(OK, file_write(text, bytes.data, bytes.len));
    CHECK_STATUS(CONFIG, run(text, resumed, 1, false, &done));
    CHECK_MESSAGE("/a.jsonl: the content of the file has changed");
    CHECK_MESSAGE("--accept-changed \"");
    CHECK_MESSAGE("--force starts over");
    CHECK_STATUS(OK, run_accepting(text, resumed, "a.jsonl", &done));
    CHECK(done.text_resumed > 4000000);
    check_same(straight, resumed);
    CHECK(!file_exists(test_path(folder, "resumed.prepare.json")));
    CHECK(!file_exists(test_path(folder, "resumed.idx.part")));
    text_release(&bytes);
}

TEST(prepare_refuses_to_resume_over_another_file)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    const char *straight = test_path(folder, "straight"), *resumed = test_path(folder, "resumed");
    struct prepare_stats done;
    struct text bytes = {0};
    uint64_t part;
    write_lines(text, 80000);
    CHECK_STATUS(OK, file_read(text, 1 << 30, &bytes));
    bytes.data[bytes.len - 3] = 'x';
    CHECK_STATUS(OK, file_write(text, bytes.data, bytes.len));
    CHECK_STATUS(RECORD, run(text, resumed, 1, false, &done));
    write_lines(text, 70000);
    CHECK_STATUS(OK, run(text, straight, 1, false, &done));
    for (int i = 0; i < 2; i++) { /* the refusal leaves what is complete */
        CHECK_STATUS(CONFIG, run(text, resumed, 1, false, &done));
        CHECK_MESSAGE("/a.jsonl: the file has ");
        CHECK_STATUS(OK, file_size(test_path(folder, "resumed.bin.part"), &part));
        CHECK(part > 4000000);
    }
    CHECK_STATUS(OK, run(text, resumed, 1, true, &done));
    CHECK(done.text_resumed == 0);
    check_same(straight, resumed);
    text_release(&bytes);
}

struct truncation {
    const char *path;
    int batches;
};

static void truncate_later(void *context, const struct prepare_stats *so_far)
{
    struct truncation *t = context;
    if (so_far->documents && !t->batches++) CHECK(!truncate(t->path, 4 << 20));
}

TEST(prepare_fails_if_a_file_is_truncated_while_it_is_read)
{
    const char *folder = test_folder();
    struct truncation t = {.path = test_path(folder, "a.jsonl")};
    const struct prepare_request p = {
        .prefix = test_path(folder, "p"), .threads = 1, .progress = truncate_later, .context = &t};
    struct prepare_stats done;
    write_lines(t.path, 160000);
    CHECK_STATUS(DATA, run_request(p, t.path, &done));
    CHECK_MESSAGE("/a.jsonl: the file was truncated from ");
    CHECK(t.batches && !file_exists(test_path(folder, "p.idx")));
}

TEST(prepare_starts_over_if_the_journal_does_not_match)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    const char *prefix = test_path(folder, "p");
    struct prepare_stats done;
    write_lines(text, 10);
    CHECK_STATUS(OK, file_write(test_path(folder, "p.bin.part"), "garbage", 7));
    CHECK_STATUS(OK, file_write(test_path(folder, "p.prepare.json"), "{\"tokens\": 99}", 14));
    CHECK_STATUS(OK, run(text, prefix, 1, false, &done));
    CHECK(done.text_resumed == 0 && done.documents > 0);
    uint64_t size;
    CHECK_STATUS(OK, file_size(test_path(folder, "p.bin"), &size));
    CHECK(size == 2 * done.tokens);
}

TEST(prepare_overwrites_only_with_force)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    const char *prefix = test_path(folder, "p");
    struct prepare_stats first, second;
    write_lines(text, 10);
    CHECK_STATUS(OK, run(text, prefix, 1, false, &first));
    write_lines(text, 20);
    CHECK_STATUS(CONFIG, run(text, prefix, 1, false, &second));
    CHECK_MESSAGE("--force");
    CHECK_STATUS(OK, run(text, prefix, 1, true, &second));
    CHECK(second.documents > first.documents);
}

/* Checks the documents of a pair of token files. */
static void check_documents(const char *prefix, const int32_t *want, const uint64_t *lengths,
                            uint64_t documents)
{
    struct megatron m;
    int32_t ids[16];
    CHECK_STATUS(OK, megatron_open(&m, prefix));
    CHECK(m.num_documents == documents);
    for (uint64_t d = 0; d < documents; want += lengths[d++]) {
        CHECK(megatron_document_length(&m, d) == lengths[d]);
        CHECK_STATUS(OK, megatron_read_document(&m, d, lengths[d], 0, ids));
        CHECK(!memcmp(ids, want, lengths[d] * sizeof *ids));
    }
    megatron_close(&m);
}

/* Prepares a column, with BOS and EOS. */
static enum status run_with(struct tokenizer *t, const char *source, const char *column,
                            const char *prefix, struct prepare_stats *done)
{
    struct source_config config = {.path = source, .column = column, .weight = 1};
    struct prepare_request p = {.sources = &config,
                                .num_sources = 1,
                                .tokenizer = t,
                                .prefix = prefix,
                                .bos = true,
                                .eos = true,
                                .force = true,
                                .threads = 2};
    return prepare_token_files(&p, done);
}

static enum status run_column(const char *source, const char *column, const char *prefix,
                              struct prepare_stats *done)
{
    struct tokenizer *t = bytes_tokenizer();
    enum status st = run_with(t, source, column, prefix, done);
    tokenizer_close(t);
    return st;
}

TEST(prepare_adds_no_eos_that_is_bos)
{
    const char *folder = test_folder(), *prefix = test_path(folder, "ids");
    const char *path = test_path(folder, "a.txt");
    struct tokenizer *t = bytes_tokenizer();
    struct prepare_stats done;
    t->eos = t->bos;
    CHECK_STATUS(OK, file_write(path, "ab", 2));
    CHECK_STATUS(OK, run_with(t, path, "text", prefix, &done));
    check_documents(prefix, (const int32_t[]){tokenizer_bos(t), 'a', 'b'}, (uint64_t[]){3}, 1);
    tokenizer_close(t);
}

TEST(prepare_copies_token_ids)
{
    const char *folder = test_folder(), *prefix = test_path(folder, "ids");
    static const char *const paths[] = {"tests/oracle/data/parquet/documents.parquet",
                                        "tests/oracle/data/arrow/stream.arrow"};
    struct prepare_stats done;
    for (int i = 0; i < 2; i++) { /* they have bad rows */
        CHECK_STATUS(RECORD, run_column(paths[i], "spike_counts", prefix, &done));
        CHECK_MESSAGE("row 4: its lists differ in length");
        CHECK_STATUS(RECORD, run_column(paths[i], "input_ids", prefix, &done));
        CHECK_MESSAGE("row 0: its list of token IDs has a null");
    }
    const int32_t want[] = {5, 6, 7, 0};
    CHECK_STATUS(OK, run_column("tests/formats/data/edge-ids.arrow", "ids", prefix, &done));
    check_documents(prefix, want, (uint64_t[]){3, 1}, 2);
    CHECK(done.tokens == 4 && done.text_bytes == 16 && done.token_bytes == 2);
    const int32_t counts[] = {255, 1, 4, 255, 2, 5, 255, 3, 255, 255, 9};
    CHECK_STATUS(OK,
                 run_column("tests/oracle/data/arrow/ids.arrow", "spike_counts", prefix, &done));
    check_documents(prefix, counts, (uint64_t[]){9, 2}, 2);
    CHECK_STATUS(RECORD, run_column("tests/oracle/data/arrow/ids.arrow", "large", prefix, &done));
    CHECK_MESSAGE("row 0 has token ID 259; the vocabulary size is 259");
}

TEST(prepare_of_its_own_output_is_the_same)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    const char *first = test_path(folder, "first"), *again = test_path(folder, "again");
    struct prepare_stats done;
    write_lines(text, 20000);
    CHECK_STATUS(OK, run(text, first, 2, false, &done));
    CHECK_STATUS(OK, run(first, again, 2, false, &done));
    check_same(first, again);
}

TEST(prepare_keeps_row_order_with_any_number_of_threads)
{
    const char *folder = test_folder();
    const char *one = test_path(folder, "one"), *five = test_path(folder, "five");
    const char *files = "tests/oracle/data/parquet/pyarrow-*.parquet";
    struct prepare_stats done;
    CHECK_STATUS(OK, run(files, one, 1, false, &done));
    CHECK_STATUS(OK, run(files, five, 5, false, &done));
    CHECK(done.documents > 200 && done.text_total == 0);
    check_same(one, five);
}
