/* test_changed_data.c -- data that change under a run, or between two runs, end it with a message
 * that names the file. */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

/* Trains on `source`, and truncates `file` as soon as it trains. */
static void check_truncated(const char *folder, const char *source, const char *file)
{
    const char *config = test_path(folder, "run.toml"), *err = test_path(folder, "err");
    const char *metrics = test_path(folder, "out/metrics.jsonl");
    struct text dump = {0}, said = {0};
    runs_write_config(config, source);
    text_addf(&dump, "job.dump_folder=%s", test_path(folder, "out"));
    pid_t child = RUNS_START(err, "train", config, dump.data, "training.steps=1000000",
                             "model.vocab_size=264", "checkpoint.interval=1000000", "--quiet");
    runs_wait_for_bytes(metrics, 500);
    CHECK(!truncate(file, 0));
    int code = runs_wait(child, err, &said);
    if (code != 65 || !strstr(said.data, file) || !strstr(said.data, "truncated from "))
        fail_msg("exit code %d: %s", code, said.data);
    CHECK_STATUS(OK, file_remove_tree(test_path(folder, "out")));
    text_release(&dump), text_release(&said);
}

TEST(a_source_truncated_during_training_ends_the_run_with_65_and_its_name)
{
    static const char *const texts[] = {"corpus.txt", "corpus.jsonl"};
    const char *folder = test_folder(), *tokens = test_path(folder, "tokens");
    for (size_t i = 0; i < 2; i++) {
        const char *corpus = test_path(folder, texts[i]);
        runs_write_corpus(corpus, 200000);
        check_truncated(folder, corpus, corpus);
    }
    runs_write_corpus(test_path(folder, "corpus.jsonl"), 200000);
    CHECK(LLAMERO(NULL, NULL, "prepare", "--tokenizer", "bytes", "--output", tokens,
                  test_path(folder, "corpus.jsonl")) == 0);
    check_truncated(folder, tokens, test_path(folder, "tokens.bin"));
}

/* Replaces every `from` in the file by `to`, which has the same length. */
static void replace(const char *path, const char *from, const char *to)
{
    struct text t = {0};
    int count = 0;
    CHECK_STATUS(OK, file_read(path, 1 << 28, &t));
    /* not strstr: with a sanitizer each call reads the whole rest */
    size_t len = strlen(from);
    for (size_t at = 0; at + len <= t.len; at++)
        if (!memcmp(t.data + at, from, len)) memcpy(t.data + at, to, len), count++;
    CHECK(count > 0);
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&t);
}

static void check_refused(const char *config, const char *dump, const char *settings,
                          const char *why)
{
    struct text err = {0};
    int code = runs_train(config, dump, settings, &err);
    if (code != 78 || !strstr(err.data, why)) fail_msg("exit code %d: %s", code, err.data);
    text_release(&err);
}

TEST(an_edit_of_the_same_size_between_two_runs_is_refused_unless_accepted)
{
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.txt");
    const char *config = test_path(folder, "run.toml"), *dump = test_path(folder, "out");
    struct text err = {0};
    runs_write_corpus(corpus, 100000);
    runs_write_config(config, corpus);
    CHECK(runs_train(config, dump, "training.steps=20", NULL) == 0);
    replace(corpus, "llama", "camel");
    check_refused(config, dump, "training.steps=30",
                  "corpus.txt: the content of the file has changed");
    CHECK(runs_metric(dump, "step") == 20);
    CHECK(runs_train(config, dump, "training.steps=30 data.accept_changed=corpus.txt", &err) == 0);
    CHECK(strstr(err.data, "accepted a change since the checkpoint was written"));
    CHECK(runs_train(config, dump, "training.steps=40", NULL) == 0); /* the new checkpoint's data */
    CHECK(runs_metric(dump, "step") == 40);
    text_release(&err);
}

TEST(a_tokenizer_with_two_ids_swapped_between_two_runs_is_refused_unless_accepted)
{
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.txt");
    const char *config = test_path(folder, "run.toml"), *dump = test_path(folder, "out");
    const char *tokenizer = test_path(folder, "tokenizer.json");
    struct text settings = {0};
    runs_write_corpus(corpus, 100000);
    runs_write_config(config, corpus);
    CHECK(LLAMERO(NULL, NULL, "tokenizer", "train", "--vocab-size", "300", "--output", tokenizer,
                  corpus) == 0);
    text_addf(&settings, "data.tokenizer=%s training.steps=20", tokenizer);
    CHECK(runs_train(config, dump, settings.data, NULL) == 0);
    runs_swap_ids(tokenizer, tokenizer, 'a', 'e');
    settings.data[settings.len - 2] = '3';
    check_refused(config, dump, settings.data, "tokenizer.json: the tokenizer's file is not the");
    text_adds(&settings, " data.accept_changed=tokenizer");
    CHECK(runs_train(config, dump, settings.data, NULL) == 0);
    CHECK(runs_metric(dump, "step") == 30);
    text_release(&settings);
}

/* Kills `prepare` when it has written a journal, which it does every five seconds: so it is stopped
 * for as long. */
static void kill_prepare(const char *folder, const char *text, const char *prefix)
{
    struct text journal = {0}, part = {0}, said = {0};
    struct timespec pause = {5, 100000000};
    text_addf(&journal, "%s.prepare.json", prefix);
    text_addf(&part, "%s.bin.part", prefix);
    const char *err = test_path(folder, "err");
    pid_t child = RUNS_START(err, "prepare", "--tokenizer", "bytes", "--workers", "1", "--output",
                             prefix, text);
    runs_wait_for_bytes(part.data, 1);
    kill(child, SIGSTOP);
    nanosleep(&pause, NULL);
    kill(child, SIGCONT);
    runs_wait_for_bytes(journal.data, 10);
    kill(child, SIGKILL);
    CHECK(runs_wait(child, err, &said) == 128 + SIGKILL);
    text_release(&journal), text_release(&part), text_release(&said);
}

static void write_long_text(const char *path)
{
    enum { TIMES = 64 };
    struct text once = {0}, t = {0};
    runs_write_corpus(path, 1 << 20);
    CHECK_STATUS(OK, file_read(path, 1 << 26, &once));
    for (int i = 0; i < TIMES; i++) text_add(&t, once.data, once.len);
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&once), text_release(&t);
}

static int prepare(const char *text, const char *prefix, const char *flag, struct text *err)
{
    return LLAMERO(NULL, err, "prepare", "--tokenizer", "bytes", "--output", prefix, text, flag);
}

TEST(prepare_killed_and_run_again_over_another_file_is_refused)
{
    const char *folder = test_folder(), *text = test_path(folder, "long.txt");
    const char *prefix = test_path(folder, "p"), *clean = test_path(folder, "clean");
    struct text err = {0};
    write_long_text(text);
    kill_prepare(folder, text, prefix);
    replace(text, "llama", "camel");
    CHECK(prepare(text, prefix, NULL, &err) == 78);
    CHECK(strstr(err.data, "long.txt: the content of the file has changed"));
    CHECK(strstr(err.data, "--accept-changed \"") && strstr(err.data, "--force starts over"));
    CHECK(prepare(text, clean, NULL, NULL) == 0);
    CHECK(prepare(text, prefix, "--force", NULL) == 0);
    struct text a = {0}, b = {0};
    CHECK_STATUS(OK, file_read(test_path(folder, "p.bin"), 1 << 28, &a));
    CHECK_STATUS(OK, file_read(test_path(folder, "clean.bin"), 1 << 28, &b));
    CHECK(a.len == b.len && !memcmp(a.data, b.data, a.len));
    text_release(&a), text_release(&b), text_release(&err);
}
