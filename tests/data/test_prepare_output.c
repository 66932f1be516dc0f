// SPDX-License-Identifier: Apache-2.0
#include "data/prepare_output.h"

#include "base/file.h"
#include "base/json.h"
#include "data/prepare.h"
#include "data/rig.h"
#include "data/source.h"
#include "formats/megatron.h"

#include <errno.h>
#include <unistd.h>

enum { LINES = 30000, EVERY = 5000 }; /* several batches of a thread; each 5000th line is bad */

static void write_lines(const char *path, int bad_every)
{
    struct text t = {0};
    for (int i = 0; i < LINES; i++) {
        if (i % bad_every == bad_every - 1)
            text_adds(&t, "{\"text\": 7}\n");
        else
            text_addf(&t, "{\"text\": \"%d %.*s\"}\n", i, 100 + i % 100,
                      "The quick brown fox jumps over the lazy dog and keeps running until it has "
                      "crossed the whole of the wide meadow, past the mill and over the bridge to "
                      "the old oak, where it rests and sleeps until the morning comes.");
    }
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&t);
}

static enum status run(const char *source, const char *prefix, double limit, bool skips,
                       struct prepare_stats *done)
{
    struct tokenizer *t;
    struct source_config config = {.path = source, .column = "text", .weight = 1};
    CHECK_STATUS(OK, tokenizer_open(&t, "bytes", &(struct tokenizer_config){0}));
    struct prepare_request p = {.sources = &config,
                                .num_sources = 1,
                                .tokenizer = t,
                                .prefix = prefix,
                                .eos = true,
                                .threads = 1,
                                .skips_bad = skips,
                                .bad_record_limit = limit};
    enum status st = prepare_token_files(&p, done);
    tokenizer_close(t);
    return st;
}

static void check_same_file(const char *a, const char *b)
{
    struct text x = {0}, y = {0};
    CHECK_STATUS(OK, file_read(a, 1 << 30, &x));
    CHECK_STATUS(OK, file_read(b, 1 << 30, &y));
    CHECK(x.len == y.len && !memcmp(x.data, y.data, x.len));
    text_release(&x), text_release(&y);
}

static void check_verifies(const char *prefix)
{
    struct text errors = {0};
    uint64_t bytes;
    CHECK_STATUS(OK, megatron_sum_verify(prefix, &errors, &bytes));
    if (errors.len) fail_msg("%s", errors.data);
    text_release(&errors);
}

TEST(prepare_skips_and_lists_bad_records)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    struct prepare_stats done;
    struct text lines = {0};
    struct megatron m;
    struct source s;
    write_lines(text, EVERY);
    CHECK_STATUS(RECORD, run(text, test_path(folder, "stop"), 0.001, false, &done));
    CHECK_STATUS(OK, run(text, test_path(folder, "p"), 0.001, true, &done));
    CHECK(done.records == LINES && done.bad_records == LINES / EVERY);
    CHECK(done.documents == LINES - LINES / EVERY);
    check_verifies(test_path(folder, "p"));
    CHECK_STATUS(OK, megatron_open(&m, test_path(folder, "p")));
    CHECK(m.num_documents == done.documents);
    megatron_close(&m);
    struct source_config all = {.path = test_path(folder, "p.*"), .column = "", .weight = 1};
    CHECK_STATUS(OK, source_open(&s, &all));
    CHECK(s.num_files == 1 && s.num_positions == done.documents);
    source_close(&s);
    CHECK_STATUS(OK, file_read(test_path(folder, "p.bad_records"), 1 << 20, &lines));
    int count = 0;
    for (const char *at = lines.data, *end; (end = strchr(at, '\n')); at = end + 1, count++) {
        struct json *v;
        CHECK_STATUS(OK, json_parse(at, (size_t)(end - at), "line", &v));
        CHECK(json_string_is(json_get(v, "file"), text) && !json_get(v, "step"));
        CHECK(json_string_is(json_get(v, "reason"), "the value of \"text\" is not a string"));
        CHECK(json_number(json_get(v, "offset")) > 0);
        json_free(v);
    }
    CHECK(count == LINES / EVERY);
    text_release(&lines);
}

TEST(prepare_resumes_after_too_many_bad_records_with_a_higher_limit)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    struct prepare_stats straight, done;
    write_lines(text, 300);
    CHECK_STATUS(OK, run(text, test_path(folder, "straight"), 1, true, &straight));
    CHECK_STATUS(DATA, run(text, test_path(folder, "p"), 0.001, true, &done));
    CHECK_MESSAGE("more than bad_record_limit = 0.001");
    CHECK_MESSAGE("a.jsonl, offset ");
    CHECK(!file_exists(test_path(folder, "p.idx")));
    CHECK_STATUS(OK, run(text, test_path(folder, "p"), 0.01, true, &done));
    CHECK(done.text_resumed > 1000000);
    CHECK(done.records == straight.records && done.bad_records == straight.bad_records);
    static const char *const suffixes[] = {"bin", "idx", "sum", "bad_records"};
    for (int i = 0; i < 4; i++) {
        struct text names[2] = {{0}};
        text_addf(&names[0], "p.%s", suffixes[i]), text_addf(&names[1], "straight.%s", suffixes[i]);
        check_same_file(test_path(folder, names[0].data), test_path(folder, names[1].data));
        text_release(&names[0]), text_release(&names[1]);
    }
    check_verifies(test_path(folder, "p"));
}

TEST(prepare_starts_over_if_what_it_wrote_has_changed)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    struct prepare_stats done;
    struct text part = {0};
    write_lines(text, 300);
    CHECK_STATUS(DATA, run(text, test_path(folder, "p"), 0.001, true, &done));
    CHECK_STATUS(OK, file_read(test_path(folder, "p.bin.part"), 1 << 30, &part));
    part.data[part.len / 2]++;
    CHECK_STATUS(OK, file_write(test_path(folder, "p.bin.part"), part.data, part.len));
    CHECK_STATUS(OK, run(text, test_path(folder, "p"), 1, true, &done));
    CHECK(done.text_resumed == 0 && done.records == LINES);
    check_verifies(test_path(folder, "p"));

    CHECK_STATUS(DATA, run(text, test_path(folder, "q"), 0.001, true, &done));
    CHECK_STATUS(OK, file_read(test_path(folder, "q.idx.part"), 1 << 30, &part));
    part.data[0]++;
    CHECK_STATUS(OK, file_write(test_path(folder, "q.idx.part"), part.data, part.len));
    CHECK_STATUS(DATA, run(text, test_path(folder, "q"), 1, true, &done));
    CHECK_MESSAGE("q.idx.part has changed: checksum mismatch; use --force");
    CHECK(!file_exists(test_path(folder, "q.idx.tmp")));
    text_release(&part);
}

TEST(prepare_leaves_no_files_of_a_failure_before_the_first_document)
{
    static const char *const texts[] = {"\n\n", "{\"text\": 7}\n{\"text\": \"a\"}\n"};
    const char *folder = test_folder(), *path = test_path(folder, "a.jsonl");
    struct prepare_stats done;
    struct file_list left;
    for (size_t i = 0; i < 2; i++) {
        CHECK_STATUS(OK, file_write(path, texts[i], strlen(texts[i])));
        CHECK(run(path, test_path(folder, "p"), 1, false, &done));
        CHECK_MESSAGE(i ? "not a string" : "the source has no document");
        CHECK_STATUS(OK, file_list_dir(&left, folder));
        CHECK(left.count == 1); /* a.jsonl */
        file_list_release(&left);
    }
}

TEST(prepare_resumes_a_half_published_output_despite_an_early_failure)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    struct prepare_stats done;
    /* as left by a run that was killed after it had renamed the .bin */
    CHECK_STATUS(OK, file_write(test_path(folder, "p.bin"), "garbage", 7));
    CHECK_STATUS(OK, file_write(test_path(folder, "p.prepare.json"), "{\"tokens\": 99}", 14));
    CHECK_STATUS(OK, file_write(text, "{\"text\": 7}\n", 12));
    CHECK_STATUS(RECORD, run(text, test_path(folder, "p"), 1, false, &done));
    CHECK(file_exists(test_path(folder, "p.prepare.json")));
    CHECK(!file_exists(test_path(folder, "p.bin.part")));
    CHECK_STATUS(OK, file_write(text, "{\"text\": \"a\"}\n", 14));
    CHECK_STATUS(OK, run(text, test_path(folder, "p"), 1, false, &done));
    check_verifies(test_path(folder, "p"));
    CHECK(!file_exists(test_path(folder, "p.prepare.json")));
}

TEST(prepare_keeps_what_it_wrote_if_it_cannot_read_it)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    static const char *const names[] = {"p.prepare.json", "p.bin.part"};
    static const char *const targets[] = {"p.prepare.json", "/proc/self/mem"}; /* ELOOP, EIO */
    struct prepare_stats done;
    write_lines(text, 300);
    CHECK_STATUS(DATA, run(text, test_path(folder, "p"), 0.001, true, &done));
    for (int i = 0; i < 2; i++) {
        const char *path = test_path(folder, names[i]), *aside = test_path(folder, "aside");
        CHECK_STATUS(OK, file_rename(path, aside));
        CHECK(symlink(targets[i], path) == 0);
        CHECK_STATUS(IO, run(text, test_path(folder, "p"), 1, true, &done));
        CHECK_MESSAGE(names[i]);
        CHECK_MESSAGE(strerror(i ? EIO : ELOOP));
        CHECK_STATUS(OK, file_rename(aside, path));
    }
    CHECK_STATUS(OK, run(text, test_path(folder, "p"), 1, true, &done));
    CHECK(done.text_resumed > 1000000);
}

TEST(prepare_survives_a_list_of_bad_records_that_cannot_be_written)
{
    const char *folder = test_folder(), *text = test_path(folder, "a.jsonl");
    struct prepare_stats done;
    write_lines(text, EVERY);
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "p.bad_records/x")));
    CHECK_STATUS(OK, run(text, test_path(folder, "p"), 0.001, true, &done));
    CHECK(done.bad_records == LINES / EVERY);
    check_verifies(test_path(folder, "p"));
}
