// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"
#include "test.h"

TEST(eval_names_what_is_missing)
{
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "eval", "/nowhere", "x.txt") == 66);
    CHECK(strstr(err.data, "/nowhere"));
    CHECK(LLAMERO(NULL, &err, "eval", test_folder(), "x.txt") == 66);
    CHECK(strstr(err.data, "no model found"));
    text_release(&err);
}

/* The last weight of the file turns NaN: eval, generate and a run that starts from it fail. */
TEST(model_with_a_nan_is_not_evaluated)
{
    static const float bad = NAN;
    struct text err = {0}, bytes = {0};
    const char *folder = test_folder(), *config = test_path(folder, "c.toml");
    const char *corpus = test_path(folder, "c.txt"), *dump = test_path(folder, "run");
    const char *model = test_path(folder, "model");
    runs_write_corpus(corpus, 20000);
    runs_write_config(config, corpus);
    CHECK(runs_train(config, dump, "training.steps=2", &err) == 0);
    CHECK(LLAMERO(NULL, &err, "convert", dump, model) == 0);
    const char *file = test_path(model, "model.safetensors");
    CHECK_STATUS(OK, file_read(file, 1 << 24, &bytes));
    CHECK(LLAMERO(NULL, &err, "eval", model, corpus) == 0);
    memcpy(bytes.data + bytes.len - sizeof bad, &bad, sizeof bad);
    CHECK_STATUS(OK, file_write(file, bytes.data, bytes.len));
    text_clear(&err);
    CHECK(LLAMERO(NULL, &err, "eval", model, corpus) == 65);
    CHECK(strstr(err.data, "tensor model.") && strstr(err.data, " is nan, expected a finite"));
    text_clear(&err);
    CHECK(LLAMERO(NULL, &err, "generate", model, "--prompt", "a") == 65);
    CHECK(strstr(err.data, " is nan, expected a finite"));
    text_clear(&err);
    text_clear(&bytes);
    text_addf(&bytes, "training.steps=2 checkpoint.initial_load_path=%s", model);
    CHECK(runs_train(config, test_path(folder, "other"), bytes.data, &err) == 65);
    CHECK(strstr(err.data, " is nan, expected a finite"));
    text_release(&err), text_release(&bytes);
}

/* Another program's model is computed in float32 if its weights are. */
TEST(eval_prints_the_precision_that_it_computed_in)
{
    struct text out = {0};
    const char *folder = test_folder(), *config = test_path(folder, "c.toml");
    const char *corpus = test_path(folder, "c.txt"), *dump = test_path(folder, "run");
    const char *wide = test_path(folder, "wide"), *half = test_path(folder, "half");
    runs_write_corpus(corpus, 20000);
    runs_write_config(config, corpus);
    CHECK(runs_train(config, dump, "training.steps=2", NULL) == 0);
    CHECK(LLAMERO(NULL, NULL, "convert", dump, wide) == 0);
    CHECK(LLAMERO(NULL, NULL, "convert", dump, half, "--dtype", "bfloat16") == 0);
    CHECK(LLAMERO(&out, NULL, "eval", wide, corpus, "--batches", "1") == 0);
    CHECK(strstr(out.data, "precision       float32\n"));
    CHECK(LLAMERO(&out, NULL, "eval", half, corpus, "--batches", "1", "--json") == 0);
    CHECK(strstr(out.data, "\"precision\": \"bfloat16\""));
    CHECK(LLAMERO(&out, NULL, "eval", wide, corpus, "--batches", "1", "--json",
                  "training.mixed_precision_param=bfloat16") == 0);
    CHECK(strstr(out.data, "\"precision\": \"bfloat16\""));
    text_release(&out);
}

/* What `eval --json` printed. */
static double loss_of(const struct text *out)
{
    const char *loss = strstr(out->data, "\"loss\": ");
    CHECK(loss);
    return strtod(loss + strlen("\"loss\": "), NULL);
}

/* Trains with `settings`, and validates on `corpus`; `eval` must compute the same loss. */
static void check_eval(const char *config, const char *dump, const char *corpus,
                       const char *settings, double tolerance)
{
    struct text all = {0}, out = {0};
    text_addf(&all,
              "%s validation.enable=true validation.dataset_path=%s "
              "training.mixed_precision_param=float32",
              settings, corpus);
    CHECK(runs_train(config, dump, all.data, NULL) == 0);
    CHECK(LLAMERO(&out, NULL, "eval", dump, corpus, "--json") == 0);
    CHECK_NEAR(loss_of(&out), runs_metric(dump, "validation_loss"), tolerance);
    text_release(&all), text_release(&out);
}

/* Masks depend on the seed, which is debug.seed unless data.seed is set. */
TEST(eval_of_a_masked_or_diffusion_model_gives_the_validation_loss_of_its_run)
{
    const char *folder = test_folder(), *config = test_path(folder, "c.toml");
    const char *corpus = test_path(folder, "c.txt");
    runs_write_corpus(corpus, 20000);
    runs_write_config(config, corpus);
    check_eval(config, test_path(folder, "masked"), corpus,
               "training.steps=2 objective.name=masked objective.mask_token=<|mask|> debug.seed=5",
               1e-5);
    check_eval(config, test_path(folder, "diffusion"), corpus,
               "training.steps=2 objective.name=diffusion objective.mask_token=<|mask|> "
               "debug.seed=5",
               1e-5);
}

static double ngram_tokens(const char *dump, const char *corpus, const char *batches)
{
    struct text out = {0};
    struct json *v;
    CHECK(LLAMERO(&out, NULL, "eval", dump, corpus, "--ngram", "1", "--json", "--batch-size", "2",
                  "--batches", batches) == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "eval", &v));
    double tokens = json_number(json_get(json_get(v, "ngram"), "tokens"));
    json_free(v);
    text_release(&out);
    return tokens;
}

/* The loss of such a model is that of the masked tokens, about one in seven. */
TEST(ngrams_predict_all_tokens_that_a_masked_model_has_read)
{
    const char *folder = test_folder(), *config = test_path(folder, "c.toml");
    const char *corpus = test_path(folder, "c.txt"), *dump = test_path(folder, "masked");
    runs_write_corpus(corpus, 20000);
    runs_write_config(config, corpus);
    CHECK(runs_train(config, dump,
                     "training.steps=1 training.seq_len=64 objective.name=masked "
                     "objective.mask_token=<|mask|>",
                     NULL) == 0);
    CHECK(ngram_tokens(dump, corpus, "3") == 3 * 2 * 64);
    CHECK(ngram_tokens(dump, corpus, "10000") >= 20000);
}

/* 2 steps are the first stage, and 4 end in the second. */
TEST(eval_has_the_rows_and_the_mask_of_the_data_stage_that_a_run_ended_in)
{
    const char *folder = test_folder(), *config = test_path(folder, "c.toml");
    const char *corpus = test_path(folder, "c.jsonl");
    runs_write_corpus(corpus, 20000);
    runs_write_config(config, corpus);
#define STAGES                                                                                     \
    " data.stage.0.at_step=2 data.stage.0.seq_len=64 data.stage.0.attn_mask_type=block_causal"
    check_eval(config, test_path(folder, "first"), corpus, "training.steps=2" STAGES, 1e-6);
    check_eval(config, test_path(folder, "second"), corpus, "training.steps=4" STAGES, 1e-6);
#undef STAGES
}

/* The angles of dynamic RoPE depend on the length of the rows, which may exceed the context that
 * config.json names: 16 here, and 32 scaled.  An exported folder does not say that they did. */
TEST(eval_has_the_rows_of_a_run_with_dynamic_rope_and_those_of_the_context_without_a_run)
{
    const char *folder = test_folder(), *config = test_path(folder, "c.toml");
    const char *corpus = test_path(folder, "c.txt"), *dump = test_path(folder, "run");
    const char *model = test_path(folder, "model");
    struct text out = {0}, same = {0};
    runs_write_corpus(corpus, 20000);
    runs_write_config(config, corpus);
    check_eval(config, dump, corpus,
               "training.steps=2 training.seq_len=64 model.max_context=16 "
               "model.rope_scaling=dynamic model.rope_factor=2",
               1e-6);
    CHECK(LLAMERO(NULL, NULL, "convert", dump, model) == 0);
    CHECK(LLAMERO(&out, NULL, "eval", model, corpus, "--json") == 0);
    CHECK(LLAMERO(&same, NULL, "eval", model, corpus, "--json", "--seq-len", "32") == 0);
    CHECK(loss_of(&out) == loss_of(&same));
    text_release(&out), text_release(&same);
}

TEST(flags_and_settings_that_eval_does_not_use_are_refused)
{
    static const struct {
        const char *words[2];
        int code;
        const char *message;
    } cases[] = {
        {{"--windows", "3"}, 64, "--windows has no effect without --held-out"},
        {{"--ngram-tokens", "3"}, 64, "--ngram-tokens has no effect without --ngram"},
        {{"--ngram-data", "x"}, 64, "--ngram-data has no effect without --ngram"},
        {{"--column", "text"}, 78, "--column text has no effect: "},
        {{"training.steps=4", NULL}, 64, "training.steps=4 has no effect here: expected a key of"},
        {{"data.tokenizer=bytes", NULL},
         64,
         "data.tokenizer=bytes has no effect here; did you mean --tokenizer bytes?"},
        {{"model.hf_assets_path=x", NULL}, 64, "did you mean --tokenizer x?"},
        {{"data.order=megatron", NULL}, 64, "no effect here: the arguments name the data"},
        {{"data.validation_share=0.5", NULL}, 64, "data.validation_share=0.5 has no effect here"},
        {{"model.rope_theta=4", NULL}, 64, "model.rope_theta=4 has no effect here: a saved model"},
    };
    struct text err = {0};
    const char *folder = test_folder(), *config = test_path(folder, "c.toml");
    const char *corpus = test_path(folder, "c.txt"), *dump = test_path(folder, "run");
    runs_write_corpus(corpus, 20000);
    runs_write_config(config, corpus);
    CHECK(runs_train(config, dump, "training.steps=2", NULL) == 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        text_clear(&err);
        int code = LLAMERO(NULL, &err, "eval", dump, corpus, cases[i].words[0], cases[i].words[1]);
        if (code != cases[i].code || !strstr(err.data, cases[i].message))
            fail_msg("%s: exit code %d, %s", cases[i].words[0], code, err.data);
    }
    text_clear(&err);
    CHECK(LLAMERO(NULL, &err, "eval", dump, "--task", "a.jsonl", "--column", "x") == 64);
    CHECK(strstr(err.data, "--column requires DATA"));
    /* Before the data are read, which would fail. */
    const char *bad = test_path(folder, "bad.jsonl"),
               *records = "{\"text\": \"a\"}\n{\"text\": 3}\n";
    CHECK_STATUS(OK, file_write(bad, records, strlen(records)));
    CHECK(LLAMERO(NULL, NULL, "eval", dump, bad) == 65);
    CHECK(LLAMERO(NULL, &err, "eval", dump, bad, "--held-out", "0.5") == 78);
    CHECK(strstr(err.data, "bad.jsonl: --held-out requires spike counts"));
    text_release(&err);
}

TEST(another_tokenizer_than_the_models_is_a_warning)
{
    struct text err = {0}, set = {0};
    const char *folder = test_folder(), *config = test_path(folder, "c.toml");
    const char *corpus = test_path(folder, "c.txt"), *dump = test_path(folder, "run");
    const char *own = test_path(folder, "a.json"), *other = test_path(folder, "b.json");
    runs_write_corpus(corpus, 20000);
    runs_write_config(config, corpus);
    CHECK(LLAMERO(NULL, NULL, "tokenizer", "train", "--vocab-size", "300", "--output", own,
                  corpus) == 0);
    runs_swap_ids(own, other, 'a', 'e');
    text_addf(&set, "training.steps=2 data.tokenizer=%s", own);
    CHECK(runs_train(config, dump, set.data, NULL) == 0);
    CHECK(LLAMERO(NULL, &err, "eval", dump, corpus, "--tokenizer", own) == 0);
    CHECK(!strstr(err.data, "not the model's own"));
    CHECK(LLAMERO(NULL, &err, "eval", dump, corpus, "--tokenizer", other) == 0);
    CHECK(strstr(err.data, "b.json: not the model's own, which is in "));
    text_release(&err), text_release(&set);
}
