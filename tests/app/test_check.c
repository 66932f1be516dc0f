// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

struct place {
    const char *corpus, *config;
};

static struct place place(void)
{
    const char *folder = test_folder();
    struct place p = {test_path(folder, "corpus.txt"), test_path(folder, "run.toml")};
    runs_write_corpus(p.corpus, 3000);
    runs_write_config(p.config, p.corpus);
    return p;
}

TEST(check_reports_a_valid_configuration_and_trains_nothing)
{
    struct place p = place();
    struct text out = {0};
    struct json *v;
    CHECK(LLAMERO(&out, NULL, "check", p.config) == 0);
    CHECK(strstr(out.data, "2 blocks of width 32, 40 steps of 128 tokens"));
    CHECK(LLAMERO(&out, NULL, "check", p.config, "--json") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "check", &v));
    CHECK(json_true(json_get(v, "ok")) && !json_string(json_get(v, "message"))[0]);
    json_free(v);
    CHECK(!file_exists("outputs"));
    text_release(&out);
}

TEST(check_finds_errors_in_data_and_layout)
{
    struct place p = place();
    struct text out = {0}, err = {0};
    struct json *v;
    CHECK(LLAMERO(NULL, &err, "check", p.config, "data.tokenizer=/nowhere.model") == 66);
    CHECK(strstr(err.data, "/nowhere.model"));
    CHECK(remove(p.corpus) == 0);
    CHECK(LLAMERO(&out, &err, "check", p.config, "--json") == 66);
    CHECK(strstr(err.data, "corpus.txt"));
    CHECK_STATUS(OK, json_parse(out.data, out.len, "check", &v));
    CHECK(!json_true(json_get(v, "ok")));
    CHECK(strstr(json_string(json_get(v, "message")), "corpus.txt"));
    json_free(v);
    CHECK(LLAMERO(NULL, &err, "check", p.config, "--ranks", "8",
                  "parallelism.tensor_parallel_degree=3") == 78);
    CHECK(strstr(err.data, "a multiple of 3, got 8"));
    CHECK(LLAMERO(NULL, &err, "check", p.config, "model.n_heads=5") == 78);
    CHECK(LLAMERO(NULL, &err, "check", p.config, "--ranks", "3",
                  "parallelism.tensor_parallel_degree=3") == 78);
    CHECK(strstr(err.data, "tensor_parallel_degree = 3 does not divide model.n_heads"));
    CHECK(LLAMERO(NULL, &err, "check", p.config, "--ranks", "0") == 64);
    text_release(&out), text_release(&err);
}

TEST(check_counts_tokens_over_data_parallel_ranks)
{
    struct place p = place();
    struct text out = {0};
    /* A text file is one document, so there is one stream. */
    CHECK(LLAMERO(&out, NULL, "check", p.config, "--ranks", "3") == 0);
    CHECK(strstr(out.data, "40 steps of 128 tokens") && strstr(out.data, "compute 2 empty rows"));
    p.corpus = test_path(test_folder(), "corpus.jsonl");
    runs_write_corpus(p.corpus, 3000);
    runs_write_config(p.config, p.corpus);
    CHECK(LLAMERO(&out, NULL, "check", p.config, "--ranks", "4",
                  "parallelism.tensor_parallel_degree=2", "model.vocab_size=260",
                  "training.global_batch_size=-1") == 0);
    CHECK(strstr(out.data, "40 steps of 128 tokens"));
    CHECK(LLAMERO(&out, NULL, "check", p.config, "--ranks", "4", "training.global_batch_size=-1") ==
          0);
    CHECK(strstr(out.data, "40 steps of 256 tokens"));
    text_release(&out);
}

TEST(check_reports_keys_that_have_no_effect)
{
    struct place p = place();
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "check", p.config, "comm.trace_buf_size=5", "compile.enable=1",
                  "training.mixed_precision_reduce=bfloat16", "training.dtype=bfloat16",
                  "config.accept_loss=training.dtype") == 0);
    CHECK(strstr(err.data, "accepted without effect: comm.trace_buf_size, compile.enable"));
    CHECK(strstr(err.data, "gradients are reduced in float32"));
    CHECK(strstr(err.data, "accepted, although the result changes: command line: training.dtype="));
    text_release(&err);
}

TEST(check_uses_the_ranks_of_the_layout_by_default)
{
    struct place p = place();
    struct text out = {0}, err = {0};
    p.corpus = test_path(test_folder(), "corpus.jsonl");
    runs_write_corpus(p.corpus, 3000);
    runs_write_config(p.config, p.corpus);
    CHECK(LLAMERO(&out, NULL, "check", p.config, "--training.steps", "7", "model.vocab_size=260",
                  "parallelism.tensor_parallel_degree=2",
                  "parallelism.data_parallel_replicate_degree=2",
                  "training.global_batch_size=-1") == 0);
    CHECK(strstr(out.data, "is valid for 4 ranks:") && strstr(out.data, "7 steps of"));
    CHECK(LLAMERO(NULL, &err, "check", p.config, "parallelism.tensor_parallel_degree=1048576",
                  "parallelism.context_parallel_degree=1024") == 64);
    CHECK(strstr(err.data, "the product of the parallel degrees"));
    text_release(&out), text_release(&err);
}

TEST(check_accepts_data_of_the_hub_that_it_cannot_read)
{
    struct place p = place();
    struct text out = {0}, err = {0};
    struct json *v;
    setenv("HF_HUB_CACHE", test_folder(), 1);
    setenv("HF_HUB_OFFLINE", "1", 1);
    CHECK(LLAMERO(&out, &err, "check", p.config,
                  "data.source.0.path=hf://datasets/org/name/a-*.jsonl", "--json") == 0);
    CHECK(strstr(err.data, "data not checked: hf://datasets/org/name/a-*.jsonl: "
                           "not in the cache; `llamero fetch PATH` downloads it"));
    CHECK_STATUS(OK, json_parse(out.data, out.len, "check", &v));
    CHECK(json_true(json_get(v, "ok")) && !json_true(json_get(v, "data_checked")));
    CHECK(json_number(json_get(v, "ranks")) == 1);
    json_free(v);
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_HUB_OFFLINE");
    text_release(&out), text_release(&err);
}
