/* test_prepare.c -- text goes in, and training over the token files is training over the text. */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include <signal.h>
#include <unistd.h>

TEST(prepared_tokens_evaluate_like_their_text)
{
    const char *folder = test_folder();
    const char *corpus = test_path(folder, "corpus.jsonl"), *config = test_path(folder, "run.toml");
    const char *prefix = test_path(folder, "tokens"), *dump = test_path(folder, "out");
    struct text out = {0};
    struct json *v;
    double loss[2];
    runs_write_corpus(corpus, 30000);
    runs_write_config(config, corpus);
    CHECK(LLAMERO(&out, NULL, "prepare", "--tokenizer", "bytes", "--bos", "--output", prefix,
                  corpus, "--json") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "prepare", &v));
    CHECK(json_number(json_get(v, "tokens")) > 20000);
    CHECK(json_number(json_get(v, "documents")) > 10);
    json_free(v);
    CHECK(runs_train(config, dump, "training.steps=5", NULL) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(LLAMERO(&out, NULL, "eval", dump, i ? prefix : corpus, "--json") == 0);
        CHECK_STATUS(OK, json_parse(out.data, out.len, "eval", &v));
        loss[i] = json_number(json_get(v, "loss"));
        json_free(v);
    }
    CHECK(loss[0] == loss[1]);
    text_release(&out);
}

/* Waits until the program has opened its output, or published it. */
static void wait_for_output(const char *part, const char *published)
{
    enum { LIMIT_S = 60 };
    for (int n = 0; n < 1000 * LIMIT_S && !file_exists(part) && !file_exists(published); n++)
        usleep(1000);
}

TEST(prepare_that_is_interrupted_says_so_and_resumes)
{
    const char *folder = test_folder(), *corpus = test_path(folder, "c.txt");
    const char *prefix = test_path(folder, "p"), *straight = test_path(folder, "s");
    const char *bin = test_path(folder, "p.bin");
    const char *log = test_path(folder, "err.txt");
    struct text err = {0}, x = {0}, y = {0};
    int code = 0;
    /* On a busy machine it may end before the signal is sent: then a longer corpus. */
    for (size_t bytes = 16 << 20; !code && bytes <= 128 << 20; bytes *= 2) {
        runs_write_corpus(corpus, bytes);
        unlink(bin), unlink(test_path(folder, "p.idx"));
        pid_t child = RUNS_START(log, "prepare", "--tokenizer", "bytes", "--workers", "1",
                                 "--output", prefix, corpus);
        wait_for_output(test_path(folder, "p.bin.part"), bin);
        kill(child, SIGINT);
        code = runs_wait(child, log, &err);
    }
    CHECK(code == 128 + SIGINT);
    CHECK(strstr(err.data, "interrupted: ") && strstr(err.data, "; the same command resumes"));
    CHECK(!file_exists(test_path(folder, "p.idx")));
    CHECK(LLAMERO(NULL, &err, "prepare", "--tokenizer", "bytes", "--output", prefix, corpus) == 0);
    CHECK(strstr(err.data, "resuming after "));
    CHECK(LLAMERO(NULL, NULL, "prepare", "--tokenizer", "bytes", "--output", straight, corpus) ==
          0);
    CHECK_STATUS(OK, file_read(bin, 1 << 29, &x));
    CHECK_STATUS(OK, file_read(test_path(folder, "s.bin"), 1 << 29, &y));
    CHECK(x.len == y.len && !memcmp(x.data, y.data, x.len));
    text_release(&err), text_release(&x), text_release(&y);
}

TEST(prepare_refuses_suffixes_and_columns_that_do_not_exist)
{
    struct text err = {0};
    const char *folder = test_folder(), *corpus = test_path(folder, "c.txt");
    const char *prefix = test_path(folder, "p"), *bin = test_path(folder, "p.bin");
    runs_write_corpus(corpus, 2000);
    CHECK(LLAMERO(NULL, &err, "prepare", "--tokenizer", "bytes", "--output", bin, corpus) == 64);
    CHECK(strstr(err.data, "p.bin: expected a prefix without \".bin\", such as "));
    CHECK(LLAMERO(NULL, &err, "prepare", "--tokenizer", "bytes", "--output", prefix, "--column",
                  "text", corpus) == 78);
    CHECK(strstr(err.data, "--column text has no effect: "));
    CHECK(!file_exists(bin));
    text_release(&err);
}

TEST(prepare_reports_missing_flags)
{
    const char *folder = test_folder();
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "prepare", "--output", "x", "y.txt") == 64);
    CHECK(strstr(err.data, "--tokenizer"));
    CHECK(LLAMERO(NULL, &err, "prepare", "--tokenizer", "bytes", "y.txt") == 64);
    CHECK(strstr(err.data, "--output"));
    CHECK(LLAMERO(NULL, &err, "prepare", "--tokenizer", "bytes", "--output", test_path(folder, "x"),
                  test_path(folder, "nothing.txt")) == 66);
    CHECK(strstr(err.data, "nothing.txt"));
    CHECK(!file_exists(test_path(folder, "x.bin.part")));
    text_release(&err);
}
