/* test_convert.c -- a model goes from a run to Hugging Face folders and back, and stays the same.
 */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

struct trained {
    const char *folder, *corpus, *config, *dump;
};

static struct trained trained(const char *settings)
{
    const char *folder = test_folder();
    struct trained t = {folder, test_path(folder, "corpus.txt"), test_path(folder, "run.toml"),
                        test_path(folder, "out")};
    runs_write_corpus(t.corpus, 20000);
    runs_write_config(t.config, t.corpus);
    CHECK(runs_train(t.config, t.dump, settings, NULL) == 0);
    return t;
}

/* eval names the objective in `err`. */
static double loss_and_log(const struct trained *t, const char *model, struct text *err)
{
    struct text out = {0};
    struct json *v;
    CHECK(LLAMERO(&out, err, "eval", model, t->corpus, "--tokenizer", "bytes", "--seq-len", "64",
                  "training.mixed_precision_param=float32", "--json") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "eval", &v));
    double loss = json_number(json_get(v, "loss"));
    json_free(v);
    text_release(&out);
    return loss;
}

static double loss_of(const struct trained *t, const char *model)
{
    return loss_and_log(t, model, NULL);
}

TEST(convert_to_hugging_face_and_back_is_lossless)
{
    struct trained t = trained("training.steps=20 model.tie_embeddings=true");
    const char *one = test_path(t.folder, "one"), *many = test_path(t.folder, "many");
    const char *back = test_path(t.folder, "back"), *torch = test_path(t.folder, "torch");
    CHECK(LLAMERO(NULL, NULL, "convert", t.dump, one) == 0);
    CHECK(LLAMERO(NULL, NULL, "convert", one, torch, "--to", "dcp", "--shard-size", "20KB") == 0);
    CHECK(LLAMERO(NULL, NULL, "convert", one, many, "--to", "hf", "--shard-size", "20KB") == 0);
    CHECK(LLAMERO(NULL, NULL, "convert", many, back) == 0);
    CHECK(file_exists(test_path(t.folder, "one/model.safetensors")));
    CHECK(!file_exists(test_path(t.folder, "one/manifest.json")));
    CHECK(!file_exists(test_path(t.folder, "many/model.safetensors")));
    CHECK(file_exists(test_path(t.folder, "many/model.safetensors.index.json")));
    CHECK(file_exists(test_path(t.folder, "back/checkpoint/step-0/manifest.json")));
    CHECK(file_exists(test_path(t.folder, "torch/.metadata")));
    CHECK(file_exists(test_path(t.folder, "torch/__0_1.distcp")));
    double loss = loss_of(&t, t.dump);
    CHECK(loss_of(&t, one) == loss && loss_of(&t, many) == loss && loss_of(&t, back) == loss);
    CHECK(loss_of(&t, torch) == loss);
}

TEST(a_masked_model_stays_masked_in_every_format)
{
    struct trained t = trained("training.steps=10 objective.name=masked "
                               "objective.mask_token=<|mask|> objective.mask_probability=0.2");
    static const char *const formats[] = {"hf", "meta", "dcp", "nxdt", "native"};
    struct text err = {0}, file = {0};
    double loss = loss_and_log(&t, t.dump, &err);
    CHECK(strstr(err.data, "objective: masked (") && strstr(err.data, ": objective.name)"));
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const char *to = test_path(t.folder, formats[i]);
        bool keeps_moments = !strcmp(formats[i], "dcp") || !strcmp(formats[i], "native");
        CHECK(LLAMERO(NULL, &err, "convert", t.dump, to, "--to", formats[i],
                      keeps_moments ? "--model-only" : "--json") == 0);
        CHECK(strstr(err.data, "objective: masked ("));
        CHECK(!strcmp(formats[i], "native") || strstr(err.data, "would attend causally"));
        CHECK(loss_and_log(&t, to, &err) == loss);
        CHECK(strstr(err.data, "objective: masked (config.json: is_causal = false)"));
    }
    const char *hf = test_path(t.folder, "hf"), *gguf = test_path(t.folder, "one.gguf");
    CHECK(LLAMERO(NULL, &err, "generate", hf, "--prompt", "x") == 78);
    CHECK(strstr(err.data, "is a masked model"));
    CHECK(LLAMERO(NULL, &err, "generate", hf, "--fill", "a <mask>") == 0);
    CHECK(LLAMERO(NULL, &err, "convert", hf, gguf) == 0);
    CHECK_STATUS(OK, file_read(gguf, 1 << 24, &file));
    CHECK(memmem(file.data, file.len, "llama.attention.causal\7\0\0\0\0", 27));
    text_release(&err), text_release(&file);
}

TEST(a_diffusion_model_stays_one_in_a_hugging_face_folder)
{
    struct trained t = trained("training.steps=10 objective.name=diffusion "
                               "objective.mask_token=<|mask|>");
    const char *hf = test_path(t.folder, "hf"), *gguf = test_path(t.folder, "one.gguf");
    struct text err = {0}, file = {0};
    double loss = loss_and_log(&t, t.dump, &err);
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, hf) == 0);
    CHECK(strstr(err.data, "a diffusion model: Transformers"));
    CHECK_STATUS(OK, file_read(test_path(hf, "config.json"), 1 << 20, &file));
    CHECK(strstr(file.data, "\"masked_diffusion\": true") && !strstr(file.data, "mlm_prob"));
    CHECK(loss_and_log(&t, hf, &err) == loss);
    CHECK(
        strstr(err.data, "objective: diffusion (config.json: is_causal = false, masked_diffusion"));
    CHECK(LLAMERO(NULL, &err, "convert", hf, gguf) == 0);
    CHECK_STATUS(OK, file_read(gguf, 1 << 24, &file));
    CHECK(memmem(file.data, file.len, "llama.attention.causal\7\0\0\0\0", 27));
    text_release(&err), text_release(&file);
}

TEST(convert_warns_of_a_tokenizer_that_transformers_would_read_otherwise)
{
    struct trained t = trained("training.steps=2 data.tokenizer="
                               "tests/tokenizer/data/sentence_unigram.model");
    const char *one = test_path(t.folder, "one"), *two = test_path(t.folder, "two");
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, one, "--to", "hf") == 0);
    CHECK(strstr(err.data, "AutoTokenizer gives other IDs for some "));
    CHECK(LLAMERO(NULL, &err, "convert", one, two, "--to", "hf") == 0);
    CHECK(strstr(err.data, "AutoTokenizer gives other IDs for some "));
    text_release(&err);
}

TEST(a_causal_models_folder_does_not_mention_the_objective)
{
    struct trained t = trained("training.steps=2");
    const char *to = test_path(t.folder, "hf"), *gguf = test_path(t.folder, "one.gguf");
    struct text err = {0}, file = {0};
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, to) == 0);
    CHECK(!err.len);
    CHECK_STATUS(OK, file_read(test_path(to, "config.json"), 1 << 20, &file));
    CHECK(!strstr(file.data, "is_causal") && !strstr(file.data, "mlm_probability"));
    CHECK_STATUS(OK, file_read(test_path(to, "tokenizer_config.json"), 1 << 20, &file));
    CHECK(!strstr(file.data, "mask_token"));
    CHECK(LLAMERO(NULL, &err, "convert", to, gguf) == 0);
    CHECK_STATUS(OK, file_read(gguf, 1 << 24, &file));
    CHECK(!memmem(file.data, file.len, "attention.causal", 16));
    text_release(&err), text_release(&file);
}

TEST(converted_hf_folder_gets_the_files_that_the_source_lacks)
{
    struct trained t = trained("training.steps=2 data.tokenizer=tests/tokenizer/data/small");
    const char *to = test_path(t.folder, "hf"), *meta = test_path(t.folder, "meta");
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "special_tokens_map.json", "generation_config.json"};
    char *step = file_join(t.dump, "checkpoint/step-2");
    for (size_t i = 0; i < 4; i++) CHECK(file_exists_in(step, names[i]));
    CHECK(file_exists_in(step, "tokenizer.model"));
    CHECK(LLAMERO(NULL, NULL, "checkpoint", "verify", step) == 0);
    CHECK(LLAMERO(NULL, NULL, "convert", t.dump, meta, "--to", "meta") == 0);
    CHECK(file_exists_in(meta, "tokenizer.model"));
    CHECK(LLAMERO(NULL, NULL, "convert", meta, to, "--to", "hf") == 0);
    for (size_t i = 0; i < 4; i++) runs_check_same_files(step, to, names[i]);
    CHECK(file_exists_in(to, "original/tokenizer.model") && !file_exists_in(to, "tokenizer.model"));
    /* a file of the source is kept */
    CHECK_STATUS(OK, file_write(test_path(meta, "generation_config.json"), "{}", 2));
    const char *kept = test_path(t.folder, "kept");
    CHECK(LLAMERO(NULL, NULL, "convert", meta, kept, "--to", "hf") == 0);
    uint64_t size = 0;
    CHECK_STATUS(OK, file_size(test_path(kept, "generation_config.json"), &size));
    CHECK(size == 2);
    free(step);
}

TEST(convert_selects_a_step_of_a_run_or_of_torch_checkpoints)
{
    struct trained t = trained("training.steps=10 checkpoint.interval=5");
    const char *five = test_path(t.folder, "five"), *ten = test_path(t.folder, "ten");
    const char *again = test_path(t.folder, "again"), *titan = test_path(t.folder, "titan");
    struct text error = {0};
    CHECK(LLAMERO(NULL, NULL, "convert", t.dump, five, "--step", "5") == 0);
    CHECK(LLAMERO(NULL, NULL, "convert", t.dump, ten) == 0);
    double early = loss_of(&t, five), late = loss_of(&t, ten);
    CHECK(early != late);
    /* A folder of torchtitan: its checkpoints have no config.json but the one above them. */
    CHECK_STATUS(OK, file_make_dirs(test_path(titan, "checkpoint")));
    CHECK(LLAMERO(NULL, NULL, "convert", five, test_path(titan, "checkpoint/step-5"), "--to",
                  "dcp") == 0);
    CHECK(LLAMERO(NULL, NULL, "convert", ten, test_path(titan, "checkpoint/step-10"), "--to",
                  "dcp") == 0);
    CHECK(rename(test_path(titan, "checkpoint/step-5/config.json"),
                 test_path(titan, "config.json")) == 0);
    CHECK_STATUS(OK, file_remove_tree(test_path(titan, "checkpoint/step-10/config.json")));
    CHECK(LLAMERO(NULL, NULL, "convert", titan, again, "--to", "hf") == 0);
    CHECK(loss_of(&t, again) == late && loss_of(&t, titan) == late);
    CHECK_STATUS(OK, file_remove_tree(again));
    CHECK(LLAMERO(NULL, NULL, "convert", test_path(titan, "checkpoint"), again, "--to", "hf",
                  "--step", "5") == 0);
    CHECK(loss_of(&t, again) == early);
    CHECK(LLAMERO(NULL, &error, "convert", five, test_path(t.folder, "x"), "--step", "5") != 0);
    CHECK(strstr(error.data, "is a single model"));
    CHECK(LLAMERO(NULL, &error, "convert", t.dump, test_path(t.folder, "x"), "--step", "7") != 0);
    CHECK(strstr(error.data, "step-7: no such checkpoint"));
    text_release(&error);
}

static double factor_of(const char *folder)
{
    struct json *root;
    CHECK_STATUS(OK, json_read(test_path(folder, "config.json"), 1 << 20, &root));
    const struct json *factor = json_get(json_get(root, "rope_scaling"), "factor");
    double is = factor ? json_number(factor) : 0;
    json_free(root);
    return is;
}

TEST(convert_sets_the_rope_scaling_factor)
{
    static const char *const factors[] = {"8", "32", "none"};
    struct trained t = trained("training.steps=2");
    struct text error = {0};
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "to-%s", factors[i]);
        const char *from = i ? test_path(t.folder, "to-8") : t.dump;
        CHECK(LLAMERO(NULL, NULL, "convert", from, test_path(t.folder, name), "--to", "hf",
                      "--rope-factor", factors[i]) == 0);
        CHECK(factor_of(test_path(t.folder, name)) == strtod(factors[i], NULL) * (i < 2));
    }
    CHECK(LLAMERO(NULL, &error, "convert", t.dump, test_path(t.folder, "x"), "--rope-factor",
                  "0.5") == 64);
    CHECK(strstr(error.data, "--rope-factor: must be a number from 1 to 1e6, or none"));
    text_release(&error);
}

TEST(training_starts_from_converted_weights)
{
    struct trained t = trained("training.steps=60 optimizer.lr=1e-2");
    const char *plain = test_path(t.folder, "plain"), *next = test_path(t.folder, "next");
    CHECK(LLAMERO(NULL, NULL, "convert", t.dump, plain) == 0);
    CHECK(LLAMERO(NULL, NULL, "convert", plain, next, "--to", "native") == 0);
    double first = runs_metric(t.dump, "loss");
    CHECK(runs_train(t.config, next, "training.steps=1 optimizer.lr=1e-9", NULL) == 0);
    CHECK_NEAR(runs_metric(next, "loss"), first, 0.2);
    CHECK(runs_metric(next, "loss") < 4); /* ln 259 is 5.6 */
}

TEST(convert_rounds_to_the_requested_dtype)
{
    struct trained t = trained("training.steps=20");
    const char *half = test_path(t.folder, "half");
    struct text out = {0}, config = {0};
    struct json *v;
    CHECK(LLAMERO(&out, NULL, "convert", t.dump, half, "--dtype", "bfloat16", "--json") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "convert", &v));
    CHECK(!strcmp(json_string(json_get(v, "dtype")), "bfloat16"));
    CHECK(json_number(json_get(v, "parameters")) > 1000);
    json_free(v);
    CHECK_STATUS(OK, file_read(test_path(t.folder, "half/config.json"), 1 << 20, &config));
    CHECK(strstr(config.data, "\"torch_dtype\": \"bfloat16\""));
    double exact = loss_of(&t, t.dump), rounded = loss_of(&t, half);
    CHECK(exact != rounded);
    CHECK_NEAR(rounded, exact, 1e-3);
    text_release(&out), text_release(&config);
}

TEST(convert_writes_a_gguf_file_with_the_tokenizer_of_the_run)
{
    struct trained t = trained("training.steps=2");
    const char *path = test_path(t.folder, "model.gguf");
    struct text out = {0}, file = {0};
    CHECK(LLAMERO(&out, NULL, "convert", t.dump, path, "--dtype", "q8_0", "--json") == 0);
    CHECK(strstr(out.data, "\"gguf\"") && strstr(out.data, "\"q8_0\""));
    CHECK_STATUS(OK, file_read(path, 1 << 26, &file));
    CHECK(!memcmp(file.data, "GGUF\3", 5));
    CHECK(memmem(file.data, file.len, "tokenizer.ggml.tokens", 21) != NULL);
    CHECK(LLAMERO(NULL, NULL, "convert", t.dump, path, "--to", "gguf") == 78);
    CHECK(LLAMERO(&out, NULL, "convert", t.dump, "x", "--to", "hf", "--dtype", "q8_0") == 64);
    CHECK(!file_exists("x"));
    text_release(&out), text_release(&file);
}

TEST(a_run_resumes_from_dcp_with_optimizer_schedule_and_data_position)
{
    struct trained t = trained("training.steps=6 checkpoint.enable=true");
    const char *torch = test_path(t.folder, "torch"), *back = test_path(t.folder, "back");
    const char *direct = test_path(t.folder, "direct"), *weights = test_path(t.folder, "weights");
    struct text out = {0}, settings = {0};
    CHECK(LLAMERO(&out, NULL, "convert", t.dump, torch, "--to", "dcp") == 0);
    CHECK(strstr(out.data, "and the optimizer after step 6"));
    CHECK(LLAMERO(&out, NULL, "convert", torch, back) == 0);
    CHECK(file_exists(test_path(back, "checkpoint/step-6/state.json")));
    CHECK(runs_train(t.config, t.dump, "training.steps=9 checkpoint.enable=true", NULL) == 0);
    CHECK(runs_train(t.config, back, "training.steps=9", NULL) == 0);
    text_addf(&settings,
              "training.steps=9 checkpoint.initial_load_path=%s "
              "checkpoint.initial_load_model_only=false",
              torch);
    CHECK(runs_train(t.config, direct, settings.data, NULL) == 0);
    double loss = runs_metric(t.dump, "loss");
    CHECK(runs_metric(back, "loss") == loss && runs_metric(direct, "loss") == loss);
    CHECK(LLAMERO(&out, NULL, "convert", torch, weights, "--model-only") == 0);
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "convert", "tests/checkpoint/data/dcp-state",
                  test_path(t.folder, "other"), "--to", "dcp") == 0);
    CHECK(strstr(err.data, "default settings: lr 0.0008, betas 0.9 and 0.95"));
    text_release(&err);
    CHECK(file_exists(test_path(weights, "checkpoint/step-0/state.json")));
    text_release(&out), text_release(&settings);
}

static bool dcp_has(const char *folder, const char *key)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(test_path(folder, ".metadata"), 1 << 20, &t));
    bool has = memmem(t.data, t.len, key, strlen(key)) != NULL;
    text_release(&t);
    return has;
}

TEST(convert_chooses_the_generation_by_the_flag_then_by_the_runs_model_name)
{
    struct trained t = trained("training.steps=1 checkpoint.enable=true");
    struct text out = {0}, err = {0};
    const char *dcp = test_path(t.folder, "dcp"), *forks = test_path(t.folder, "forks");
    const char *named = test_path(t.folder, "named");
    CHECK(LLAMERO(&out, &err, "convert", t.dump, dcp, "--to", "dcp", "--json") == 0);
    CHECK(strstr(out.data, "\"generation\": \"v0.2\"") && dcp_has(dcp, "ntokens_seen"));
    CHECK(strstr(err.data, "exclude_from_loading") && !dcp_has(dcp, "dp_rank_0"));
    CHECK(LLAMERO(&out, &err, "convert", t.dump, forks, "--to", "dcp", "--generation", "frontier",
                  "--dp-size", "2") == 0);
    CHECK(dcp_has(forks, "model.output.weight") && dcp_has(forks, "dataloader.dp_rank_1"));
    CHECK(!dcp_has(forks, "world_size") && !dcp_has(forks, "ntokens_seen"));
    struct text toml = {0};
    const char *saved = test_path(t.dump, "checkpoint/step-1/config.toml");
    CHECK_STATUS(OK, file_read(saved, 1 << 20, &toml));
    char *name = strstr(toml.data, "name = \"llama3\"");
    CHECK(name);
    text_clear(&out);
    text_add(&out, toml.data, (size_t)(name - toml.data));
    text_addf(&out, "name = \"frontier\"%s", name + strlen("name = \"llama3\""));
    CHECK_STATUS(OK, file_write(test_path(forks, "config.toml"), out.data, out.len));
    CHECK(LLAMERO(&out, &err, "convert", forks, named, "--to", "dcp") == 0);
    CHECK(dcp_has(named, "model.output.weight") && dcp_has(named, "global_avg_losses"));
    text_release(&out), text_release(&err), text_release(&toml);
}

TEST(convert_shards_a_model_for_nxd_training_and_merges_it_again)
{
    struct trained t = trained("training.steps=20 model.vocab_size=264");
    struct text err = {0};
    const char *cut = test_path(t.folder, "cut"), *hf = test_path(t.folder, "hf");
    CHECK(LLAMERO(NULL, NULL, "convert", t.dump, cut, "--to", "nxdt", "--tp-size", "4", "--pp-size",
                  "2", "--kv-size-multiplier", "2", "--fuse-qkv") == 0);
    CHECK(file_exists(test_path(cut, "model/dp_rank_00_tp_rank_01_pp_rank_01.pt.info.pt")));
    CHECK(loss_of(&t, cut) == loss_of(&t, t.dump));
    CHECK(rename(test_path(cut, "config.json"), test_path(t.folder, "other.json")) == 0);
    CHECK(LLAMERO(NULL, &err, "convert", cut, hf, "--to", "hf") == 66);
    CHECK(strstr(err.data, "config.json"));
    CHECK(LLAMERO(NULL, NULL, "convert", cut, hf, "--to", "hf", "--config",
                  test_path(t.folder, "other.json")) == 0);
    CHECK(loss_of(&t, hf) == loss_of(&t, t.dump));
    /* in the words of NxD Training's converter */
    const char *theirs = test_path(t.folder, "theirs"), *merged = test_path(t.folder, "merged");
    const char *model = test_path(theirs, "model");
    CHECK(LLAMERO(NULL, NULL, "convert", "--input_dir", t.dump, "--output_dir", theirs, "--tp_size",
                  "4", "--kv_size_multiplier", "2", "--qkv_linear", "True", "--save_xser", "True",
                  "--hw_backend", "trn1", "--model_style", "hf", "--convert_from_full_state") == 0);
    CHECK(file_exists(test_path(model, "dp_rank_00_tp_rank_03_pp_rank_00.pt.info.pt")));
    CHECK(LLAMERO(NULL, NULL, "convert", "--input_dir", model, "--output_dir", merged,
                  "--load_xser", "True", "--n_layers", "2", "--convert_to_full_state") == 0);
    CHECK(loss_of(&t, merged) == loss_of(&t, t.dump));
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, "x", "--model_style", "megatron") == 64);
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, "x", "--to", "hf", "--tp-size", "2") == 64);
    CHECK(strstr(err.data, "--tp-size requires --to nxdt; it has no effect with --to hf"));
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, "x", "--to", "nxdt", "--tp-size", "16") == 78);
    CHECK(!file_exists("x"));
    text_release(&err);
}

TEST(convert_overwrites_nothing_and_rejects_invalid_flags)
{
    struct trained t = trained("training.steps=2");
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, t.folder) == 78);
    CHECK(strstr(err.data, "not empty"));
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, t.dump, "--to", "native") == 78);
    CHECK(strstr(err.data, "already contains checkpoints"));
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, "x", "--to", "native", "--without-io") == 64);
    CHECK(strstr(err.data, "--without-io requires --to hf or --to meta or --to dcp"));
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, "x", "--shard-size", "-1GB") == 64);
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, "x", "--shard-size", "0.5") == 64);
    CHECK(strstr(err.data, "expected a size of at least 1 byte, such as 5GB or 200MB"));
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, "x", "--to", "hf", "--generation", "v0.1") == 64);
    CHECK(strstr(err.data, "--generation requires --to dcp; it has no effect with --to hf"));
    CHECK(LLAMERO(NULL, &err, "convert", t.dump, "x", "--to", "dcp", "--generation", "new",
                  "--dp-size", "2") == 64);
    CHECK(strstr(err.data, "--dp-size: not supported for --generation new"));
    CHECK(LLAMERO(NULL, &err, "convert", test_path(t.folder, "nothing"), "x") == 66);
    CHECK(!file_exists("x"));
    text_release(&err);
}

TEST(a_run_starts_from_blocks_without_embedding_and_head)
{
    struct trained t = trained("training.steps=2");
    struct text out = {0}, settings = {0};
    const char *blocks = test_path(t.folder, "blocks"), *next = test_path(t.folder, "next");
    CHECK(LLAMERO(&out, NULL, "convert", t.dump, blocks, "--to", "dcp", "--without-io") == 0);
    CHECK(LLAMERO(NULL, NULL, "eval", blocks, t.corpus, "--tokenizer", "bytes") == 78);
    CHECK(LLAMERO(NULL, NULL, "convert", blocks, test_path(t.folder, "hf-blocks"), "--to", "hf",
                  "--without-io") == 0);
    text_addf(&settings, "training.steps=1 checkpoint.initial_load_path=%s", blocks);
    CHECK(runs_train(t.config, next, settings.data, NULL) != 0);
    text_adds(&settings,
              " checkpoint.exclude_from_loading=model.embed_tokens.weight,lm_head.weight");
    CHECK(runs_train(t.config, next, settings.data, NULL) == 0);
    text_release(&out), text_release(&settings);
}

TEST(initial_load_path_accepts_any_format)
{
    static const char *const formats[][3] = {{"hf", "hf", ""},
                                             {"dcp", "dcp", ""},
                                             {"meta", "meta", ""},
                                             {"meta", "pth", "/consolidated.00.pth"},
                                             {"nxdt", "nxdt", ""}};
    struct trained t = trained("training.steps=30 optimizer.lr=1e-2");
    double want = loss_of(&t, t.dump);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const char *folder = test_path(t.folder, formats[i][1]);
        const char *next = test_path(folder, "../next");
        struct text settings = {0};
        bool keeps_moments = !strcmp(formats[i][0], "dcp");
        CHECK(LLAMERO(NULL, NULL, "convert", t.dump, folder, "--to", formats[i][0],
                      keeps_moments ? "--model-only" : "--json") == 0);
        text_addf(&settings,
                  "training.steps=1 optimizer.lr=1e-30 optimizer.weight_decay=0 "
                  "checkpoint.initial_load_path=%s%s",
                  folder, formats[i][2]);
        CHECK(runs_train(t.config, next, settings.data, NULL) == 0);
        CHECK(loss_of(&t, next) == want);
        CHECK_STATUS(OK, file_remove_tree(next));
        text_release(&settings);
    }
}
