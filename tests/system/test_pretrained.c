/* test_pretrained.c -- training starts from a pretrained model of any format, with the tokenizer in
 * its folder. */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include <unistd.h>

#define TOKENIZER "tests/tokenizer/data/small.json"
#define SPEED     "metrics.peak_flops=1e12 " /* skips measuring it */

struct pretrained {
    const char *folder, *config, *dump, *step;
    double loss; /* of the model on the first batch of the data */
};

/* Trains 20 steps, then one more on the first batch of the data again, for its loss. */
static struct pretrained pretrain(void)
{
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.txt");
    struct pretrained p = {folder, test_path(folder, "run.toml"), test_path(folder, "out"), NULL,
                           0};
    p.step = test_path(p.dump, "checkpoint/step-20");
    runs_write_corpus(corpus, 20000);
    runs_write_config(p.config, corpus);
    CHECK(runs_train(p.config, p.dump,
                     "training.steps=20 optimizer.lr=1e-2 checkpoint.interval=20 " SPEED
                     "data.tokenizer=" TOKENIZER,
                     NULL) == 0);
    double last = runs_metric(p.dump, "loss");
    CHECK(runs_train(p.config, p.dump,
                     "training.steps=21 " SPEED "data.tokenizer=" TOKENIZER
                     " checkpoint.exclude_from_loading=dataloader",
                     NULL) == 0);
    p.loss = runs_metric(p.dump, "loss");
    CHECK(runs_metric(p.dump, "step") == 21);
    CHECK_NEAR(p.loss, last, 0.8);
    CHECK(p.loss < 5); /* an untrained model has 6 or more */
    return p;
}

/* Runs the first step of a new run; returns the exit code. */
static int begin(const struct pretrained *p, const char *dump, const char *from,
                 const char *settings, struct text *err)
{
    struct text all = {0};
    text_addf(&all, "training.steps=1 " SPEED "data.tokenizer= checkpoint.initial_load_path=%s %s",
              from, settings);
    int code = runs_train(p->config, dump, all.data, err);
    text_release(&all);
    return code;
}

TEST(a_run_starts_with_the_loss_of_the_pretrained_model_in_any_format)
{
    static const struct {
        const char *name, *format, *flags, *below;
    } kinds[] = {
        {"hf", "hf", "--shard-size=20KB", ""},
        {"meta", "meta", "--dtype=float32", ""},
        {"pth", "meta", "--dtype=float32", "/consolidated.00.pth"},
        {"dcp", "dcp", "--model-only", ""},
        {"dcprun", "dcp", "--dtype=float32", ""},
        {"nxdt", "nxdt", "--fuse-qkv", ""},
        {"native", "native", "--model-only", "/checkpoint/step-0"},
        {"run", "native", "--dtype=float32", ""},
    };
    struct pretrained p = pretrain();
    struct text err = {0}, from = {0};
    for (size_t i = 0; i <= sizeof kinds / sizeof *kinds; i++) {
        bool converted = i < sizeof kinds / sizeof *kinds;
        const char *name = converted ? kinds[i].name : "itself";
        const char *model = converted ? test_path(p.folder, name) : p.step;
        char dump[300];
        snprintf(dump, sizeof dump, "%s/begun-%s", p.folder, name);
        if (converted)
            CHECK(LLAMERO(NULL, NULL, "convert", p.step, model, "--to", kinds[i].format,
                          kinds[i].flags) == 0);
        text_release(&from);
        text_addf(&from, "%s%s", model, converted ? kinds[i].below : "");
        if (begin(&p, dump, from.data, converted ? "checkpoint.load_only=true" : "", &err))
            fail_msg("%s: %s", name, err.data);
        CHECK(strstr(err.data, "tokenizer.json, found in checkpoint.initial_load_path"));
        CHECK_NEAR(runs_metric(dump, "loss"), p.loss, 1e-6);
        CHECK(converted || file_exists(test_path(dump, "checkpoint/step-1/tokenizer.json")));
    }
    text_release(&from);
    text_addf(&from, "checkpoint.initial_load_path=%s", p.step);
    CHECK(LLAMERO(NULL, NULL, "check", p.config, "data.tokenizer=", from.data) == 0);
    CHECK(LLAMERO(NULL, NULL, "plan", p.config, "data.tokenizer=", from.data) == 0);
    text_release(&err), text_release(&from);
}

TEST(weights_of_another_vocabulary_size_are_rejected_with_both_sizes)
{
    struct pretrained p = pretrain();
    struct text err = {0};
    const char *next = test_path(p.folder, "next"), *hf = test_path(p.folder, "hf");
    const char *none = test_path(p.folder, "none");
    CHECK(begin(&p, none, p.step, "data.tokenizer=bytes", &err) == 78);
    CHECK(strstr(err.data, "saved with a vocabulary of") && strstr(err.data, "model.vocab_size"));
    CHECK(!strstr(err.data, "which is beside"));
    CHECK(begin(&p, none, "/nowhere", "", &err) == 66);
    CHECK(strstr(err.data, "/nowhere: no such folder"));
    /* Without a tokenizer in the folder the configuration's is used. */
    CHECK(LLAMERO(NULL, NULL, "convert", p.step, hf) == 0);
    CHECK(unlink(test_path(hf, "tokenizer.json")) == 0);
    CHECK(begin(&p, none, hf, "", &err) == 78);
    CHECK(strstr(err.data, "set model.vocab_size or use its tokenizer"));
    CHECK(begin(&p, next, hf, "data.tokenizer=" TOKENIZER, &err) == 0);
    CHECK_NEAR(runs_metric(next, "loss"), p.loss, 1e-6);
    text_release(&err);
}
