/* test_prepare.c -- text goes in, and training over the token files is training over the text. */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

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
