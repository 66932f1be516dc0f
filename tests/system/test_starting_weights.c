/* test_starting_weights.c -- a run starts from part of a model, from a model of other data, and
 * from a tied one; `check` compares shapes before it starts. */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include <string.h>
#include <unistd.h>

#define TOKENIZER "data.tokenizer=tests/tokenizer/data/small.json"
#define SHORT     "metrics.peak_flops=1e12 checkpoint.interval=1 "
#define BLOCKS    "loads model.layers.0-1.*, model.norm.weight"
#define IO        "model.embed_tokens.weight, lm_head.weight"
#define EXCLUDE   "checkpoint.exclude_from_loading=model.embed_tokens.weight,lm_head.weight"

struct place {
    const char *folder, *config;
    struct text err, set;
};

static struct place place(void)
{
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.txt");
    struct place p = {folder, test_path(folder, "run.toml"), {0}, {0}};
    runs_write_corpus(corpus, 20000);
    runs_write_config(p.config, corpus);
    return p;
}

static void leave(struct place *p) { text_release(&p->err), text_release(&p->set); }

/* Trains in <folder>/<name> from that path, or NULL; returns the exit code. */
static int train(struct place *p, const char *name, const char *from, const char *settings)
{
    text_clear(&p->set), text_clear(&p->err);
    text_addf(&p->set, SHORT "%s", settings);
    if (from) text_addf(&p->set, " checkpoint.initial_load_path=%s", from);
    return runs_train(p->config, test_path(p->folder, name), p->set.data, &p->err);
}

static const char *step(const struct place *p, const char *name, const char *number)
{
    char path[100];
    snprintf(path, sizeof path, "%s/checkpoint/step-%s", name, number);
    return test_path(p->folder, path);
}

/* As gpt-neuro's llama_to_dcp.py leaves it: no embedding, no head, no configuration. */
static void put_blocks(const struct place *p, const char *from, const char *name)
{
    const char *to = step(p, name, "0");
    CHECK_STATUS(OK, file_make_dirs(test_path(p->folder, name)));
    CHECK(LLAMERO(NULL, NULL, "convert", from, to, "--to", "dcp", "--without-io") == 0);
    CHECK(unlink(test_path(to, "config.json")) == 0);
}

/* The exclusion is for the start: later the run's own tensors are loaded, with their moments. */
TEST(a_resumed_run_loads_the_tensors_that_its_start_excluded)
{
    struct place p = place();
    CHECK(train(&p, "language", NULL, "training.steps=2 " TOKENIZER) == 0);
    const char *from = step(&p, "language", "2");
    CHECK(train(&p, "straight", from, "training.steps=4 " EXCLUDE) == 0);
    CHECK(train(&p, "resumed", from, "training.steps=3 " EXCLUDE) == 0);
    CHECK(train(&p, "resumed", from, "training.steps=4 " EXCLUDE) == 0);
    CHECK(runs_metric(test_path(p.folder, "straight"), "loss") ==
          runs_metric(test_path(p.folder, "resumed"), "loss"));
    leave(&p);
}

/* Rank 0 finds the error before the ranks split into groups; the other must not wait there. */
TEST(ranks_stop_together_if_the_starting_weights_do_not_fit)
{
    struct place p = place();
    CHECK(train(&p, "small", NULL, "training.steps=1") == 0);
    text_clear(&p.set);
    text_addf(&p.set,
              SHORT "parallelism.tensor_parallel_degree=2 model.ffn_hidden=88 "
                    "checkpoint.initial_load_path=%s",
              step(&p, "small", "1"));
    CHECK(runs_train_ranks(2, p.config, test_path(p.folder, "run"), p.set.data, &p.err) == 78);
    CHECK(strstr(p.err.data, "set model.ffn_hidden to fit"));
    leave(&p);
}

TEST(a_partial_dcp_as_step_0_provides_the_blocks)
{
    struct place p = place();
    CHECK(train(&p, "language", NULL, "training.steps=2 " TOKENIZER) == 0);
    put_blocks(&p, step(&p, "language", "2"), "run");
    CHECK(train(&p, "run", NULL, "training.steps=3 checkpoint.keep_latest_k=2") == 0);
    CHECK(strstr(p.err.data, BLOCKS "; keeps initial values of " IO " (missing there)"));
    CHECK(strstr(p.err.data, "starting from the weights of"));
    CHECK(file_exists(test_path(step(&p, "run", "0"), ".metadata"))); /* not ours to delete */
    CHECK(train(&p, "run", NULL, "training.steps=4 checkpoint.keep_latest_k=2") == 0);
    CHECK(strstr(p.err.data, "resuming from") && !strstr(p.err.data, "initial values"));
    /* Blocks of another width. */
    put_blocks(&p, step(&p, "language", "2"), "other");
    CHECK(train(&p, "other", NULL, "training.steps=1 model.ffn_hidden=88") == 78);
    CHECK(strstr(p.err.data, "tensor model.layers.0.mlp.gate_proj.weight has shape ["));
    CHECK(strstr(p.err.data, "expected [88, 32]: set model.ffn_hidden to fit"));
    leave(&p);
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)); text++) n++;
    return n;
}

TEST(a_damaged_checkpoint_is_reported_once)
{
    struct place p = place();
    CHECK(train(&p, "run", NULL, "training.steps=2") == 0);
    CHECK(truncate(test_path(step(&p, "run", "2"), "state.json"), 1) == 0);
    CHECK(train(&p, "run", NULL, "training.steps=2") == 0);
    CHECK(count(p.err.data, "skipping step-2: ") == 1);
    CHECK(strstr(p.err.data, "resuming from ") && strstr(p.err.data, "step-1"));
    for (int i = 1; i <= 2; i++)
        CHECK(truncate(test_path(step(&p, "run", i == 1 ? "1" : "2"), "state.json"), 1) == 0);
    CHECK(train(&p, "run", NULL, "training.steps=2") == 65);
    CHECK(count(p.err.data, "skipping step-2: ") == 1 &&
          count(p.err.data, "skipping step-1: ") == 1);
    leave(&p);
}

/* Writes `to` instead of `from`, which is as long, in all names of a DCP directory. */
static void rename_entries(const char *dcp, const char *from, const char *to)
{
    struct text metadata = {0};
    const char *path = test_path(dcp, ".metadata");
    size_t len = strlen(from);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &metadata));
    for (size_t i = 0; i + len <= metadata.len; i++)
        if (!memcmp(metadata.data + i, from, len)) memcpy(metadata.data + i, to, len);
    CHECK_STATUS(OK, file_write(path, metadata.data, metadata.len));
    text_release(&metadata);
}

TEST(ignored_moments_of_the_start_are_reported_once)
{
    struct place p = place();
    CHECK(train(&p, "ours", NULL, "training.steps=1") == 0);
    const char *dcp = test_path(p.folder, "dcp");
    CHECK(LLAMERO(NULL, NULL, "convert", step(&p, "ours", "1"), dcp, "--to", "dcp") == 0);
    rename_entries(dcp, ".state.", ".State.");
    CHECK(train(&p, "run", dcp, "training.steps=1 checkpoint.initial_load_model_only=false") == 0);
    CHECK(count(p.err.data, "ignoring the optimizer's moments that are not AdamW's") == 1);
    leave(&p);
}

TEST(moments_of_an_unknown_name_are_refused_unless_the_optimizer_is_excluded)
{
    static const char *const modes[] = {"training.steps=2 checkpoint.initial_load_model_only=false",
                                        "training.steps=2 checkpoint.initial_load_model_only=false "
                                        "checkpoint.exclude_from_loading=optimizer",
                                        "training.steps=2"};
    const char *refused = "optimizer.state.norm.weight.maxi does not belong to AdamW of a Llama";
    struct place p = place();
    CHECK(train(&p, "ours", NULL, "training.steps=1") == 0);
    const char *dcp = test_path(p.folder, "dcp"), *back = test_path(p.folder, "back");
    CHECK(LLAMERO(NULL, NULL, "convert", step(&p, "ours", "1"), dcp, "--to", "dcp") == 0);
    rename_entries(dcp, "state.norm.weight.step", "state.norm.weight.maxi");
    for (int i = 0; i < 3; i++) {
        char run[] = {'r', (char)('0' + i), 0};
        CHECK(train(&p, run, dcp, modes[i]) == (i ? 0 : 78));
        CHECK(!i == (strstr(p.err.data, refused) != NULL));
    }
    CHECK(LLAMERO(NULL, &p.err, "convert", dcp, back) == 78 && strstr(p.err.data, refused));
    CHECK(LLAMERO(NULL, NULL, "convert", dcp, back, "--model-only") == 0);
    leave(&p);
}

TEST(a_partial_model_with_params_json_requires_its_missing_tensors_to_be_excluded)
{
    struct place p = place();
    CHECK(train(&p, "language", NULL, "training.steps=2 " TOKENIZER) == 0);
    const char *blocks = test_path(p.folder, "blocks"), *from = step(&p, "language", "2");
    for (int dcp = 0; dcp < 2; dcp++) {
        CHECK(LLAMERO(NULL, NULL, "convert", from, blocks, "--to", dcp ? "dcp" : "meta",
                      "--without-io") == 0);
        if (dcp) {
            struct text json = {0};
            const char *meta = test_path(p.folder, "meta");
            CHECK_STATUS(OK, file_read(test_path(meta, "params.json"), 1 << 20, &json));
            CHECK_STATUS(OK, file_write(test_path(blocks, "params.json"), json.data, json.len));
            text_release(&json);
        }
        CHECK(unlink(test_path(blocks, "config.json")) == 0);
        CHECK(train(&p, "none", blocks, "training.steps=1") == 78);
        CHECK(strstr(p.err.data, "tensor model.embed_tokens.weight is missing; to start from its "
                                 "initial values, add it to checkpoint.exclude_from_loading"));
        CHECK(train(&p, dcp ? "two" : "one", blocks, "training.steps=1 " EXCLUDE) == 0);
        CHECK(strstr(p.err.data, BLOCKS "; keeps initial values of " IO " (excluded)"));
        CHECK(rename(blocks, test_path(p.folder, dcp ? "dcp" : "meta")) == 0);
    }
    leave(&p);
}

TEST(spike_counts_ignore_the_tokenizer_of_the_initial_weights)
{
    struct place p = place();
    struct text toml = {0};
    CHECK(train(&p, "language", NULL, "training.steps=1 " TOKENIZER) == 0);
    text_adds(&toml, "[model]\ndim = 32\nn_layers = 2\nn_heads = 4\nn_kv_heads = 2\n"
                     "ffn_hidden = 64\nvocab_size = 256\n[training]\nseq_len = 32\n"
                     "[[data.source]]\npath = \"tests/oracle/data/parquet/documents.parquet\"\n"
                     "column = \"spike_counts\"\n");
    CHECK_STATUS(OK, file_write(p.config, toml.data, toml.len));
    text_clear(&p.set);
    text_addf(&p.set, "checkpoint.initial_load_path=%s", step(&p, "language", "1"));
    CHECK(LLAMERO(NULL, &p.err, "check", p.config, p.set.data, EXCLUDE, "data.streams=1",
                  "data.on_bad_record=skip") == 0);
    CHECK(strstr(p.err.data, BLOCKS "; keeps initial values of " IO " (excluded)"));
    CHECK(!strstr(p.err.data, "more than model.vocab_size"));
    text_release(&toml);
    leave(&p);
}

TEST(an_untied_run_copies_the_head_of_a_tied_model)
{
    struct place p = place();
    CHECK(train(&p, "tied", NULL, "training.steps=2 model.tie_embeddings=true") == 0);
    const char *from = step(&p, "tied", "2");
    CHECK(train(&p, "again", from, "training.steps=1 model.tie_embeddings=true") == 0);
    double want = runs_metric(test_path(p.folder, "again"), "loss");
    CHECK(train(&p, "untied", from, "training.steps=1") == 0);
    CHECK(strstr(p.err.data,
                 "; copies lm_head.weight from model.embed_tokens.weight, as it is tied"));
    CHECK_NEAR(runs_metric(test_path(p.folder, "untied"), "loss"), want, 1e-6);
    /* And back, as long as both are equal. */
    CHECK(train(&p, "seed", from, "checkpoint.create_seed_checkpoint=true") == 0);
    CHECK(train(&p, "back", step(&p, "seed", "0"), "training.steps=1 model.tie_embeddings=true") ==
          0);
    CHECK(strstr(p.err.data, "; leaves out lm_head.weight, as this model is tied"));
    CHECK_NEAR(runs_metric(test_path(p.folder, "back"), "loss"), want, 1e-6);
    CHECK(train(&p, "none", step(&p, "untied", "1"),
                "training.steps=1 model.tie_embeddings=true") == 78);
    CHECK(strstr(p.err.data, "lm_head.weight differs from the embedding"));
    CHECK(strstr(p.err.data, "set model.tie_embeddings = false"));
    CHECK(train(&p, "without", step(&p, "untied", "1"),
                "training.steps=1 model.tie_embeddings=true "
                "checkpoint.exclude_from_loading=lm_head.weight") == 0);
    leave(&p);
}

/* Says in config.json that the model is tied. */
static void tie_config(const char *folder)
{
    const char *path = test_path(folder, "config.json");
    static const char key[] = "\"tie_word_embeddings\": ";
    struct text json = {0}, tied = {0};
    CHECK_STATUS(OK, file_read(path, 1 << 20, &json));
    const char *at = strstr(json.data, key);
    CHECK(at && !strncmp(at + strlen(key), "false", 5));
    text_add(&tied, json.data, (size_t)(at - json.data));
    text_addf(&tied, "%strue%s", key, at + strlen(key) + 5);
    CHECK_STATUS(OK, file_write(path, tied.data, tied.len));
    text_release(&json), text_release(&tied);
}

TEST(a_head_of_its_own_is_used_although_the_configuration_says_tied)
{
    struct place p = place();
    struct text out[2] = {{0}, {0}};
    CHECK(train(&p, "first", NULL, "training.steps=2") == 0);
    const char *from = step(&p, "first", "2"), *hf = test_path(p.folder, "hf");
    const char *corpus = test_path(p.folder, "corpus.txt");
    CHECK(LLAMERO(NULL, NULL, "convert", from, hf) == 0);
    CHECK(LLAMERO(&out[0], NULL, "eval", hf, corpus, "--tokenizer", "bytes", "--json") == 0);
    tie_config(hf);
    CHECK(LLAMERO(&out[1], &p.err, "eval", hf, corpus, "--tokenizer", "bytes", "--json") == 0);
    CHECK(strstr(p.err.data, "lm_head.weight differs from the embedding, although "
                             "\"tie_word_embeddings\" is true: it is used"));
    CHECK(!strcmp(out[0].data, out[1].data));
    CHECK(train(&p, "tied", hf, "training.steps=1 model.tie_embeddings=true") == 78);
    CHECK(strstr(p.err.data, "set model.tie_embeddings = false"));
    CHECK(train(&p, "again", from, "training.steps=1") == 0);
    CHECK(train(&p, "untied", hf, "training.steps=1") == 0);
    CHECK(runs_metric(test_path(p.folder, "untied"), "loss") ==
          runs_metric(test_path(p.folder, "again"), "loss"));
    text_release(&out[0]), text_release(&out[1]);
    leave(&p);
}

static int check(struct place *p, const char *from, const char *setting)
{
    char path[300];
    snprintf(path, sizeof path, "checkpoint.initial_load_path=%s", from);
    text_clear(&p->err);
    return LLAMERO(NULL, &p->err, "check", p->config, path, setting);
}

TEST(check_compares_the_shapes_of_the_initial_weights)
{
    struct place p = place();
    CHECK(train(&p, "first", NULL, "training.steps=1") == 0);
    const char *from = step(&p, "first", "1");
    const char *weights = test_path(from, "model-00001-of-00001.safetensors");
    CHECK(check(&p, from, "training.steps=1") == 0);
    CHECK(strstr(p.err.data, "step-1: loads all 21 tensors"));
    CHECK(check(&p, "/nowhere", "training.steps=1") == 66);
    CHECK(strstr(p.err.data, "/nowhere: no such folder"));
    CHECK(check(&p, from, "model.ffn_hidden=88") == 78);
    CHECK(strstr(p.err.data, "expected [88, 32]: set model.ffn_hidden to fit"));
    CHECK(check(&p, from, "model.n_heads=8") == 78);
    CHECK(strstr(p.err.data, "expected [8, 32]: set model.n_kv_heads and model.head_dim"));
    CHECK(check(&p, from, "model.vocab_size=300") == 78);
    CHECK(strstr(p.err.data, "set model.vocab_size or use its tokenizer"));
    CHECK(check(&p, "hf://nobody/nothing", "training.steps=1") == 0);
    CHECK(strstr(p.err.data, "not checked, since it is not downloaded yet"));
    CHECK(truncate(weights, 5000) == 0);
    CHECK(check(&p, from, "training.steps=1") == 65);
    leave(&p);
}
