// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

/* Trains a masked model on one repeated sentence; returns the folder of the run. */
static char *trained(const char *steps)
{
    const char *folder = test_folder();
    char *corpus = file_join(folder, "corpus.txt"), *config = file_join(folder, "run.toml");
    char *dump = file_join(folder, "out");
    struct text t = {0}, settings = {0};
    for (int i = 0; i < 500; i++) text_adds(&t, "the llama walks over snow\n");
    CHECK_STATUS(OK, file_write(corpus, t.data, t.len));
    runs_write_config(config, corpus);
    text_addf(&settings,
              "objective.name=masked objective.mask_token=<|mask|> objective.mask_probability=0.2 "
              "training.steps=%s lr_scheduler.total_steps=%s optimizer.lr=1e-2",
              steps, steps);
    CHECK(runs_train(config, dump, settings.data, NULL) == 0);
    text_release(&t), text_release(&settings);
    free(corpus), free(config);
    return dump;
}

TEST(masks_are_filled_in_with_the_original_text)
{
    char *run = trained("500");
    struct text out = {0}, again = {0};
    struct json *v;
    CHECK(LLAMERO(&out, NULL, "generate", run, "--fill", "the lla<mask>a walks ov<|mask|>r snow",
                  "--temperature", "0", "--json") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "generate", &v));
    const struct json *filled = json_get(v, "filled");
    const char *text = json_string(json_get(v, "text"));
    CHECK(json_count(filled) == 2);
    CHECK(!strncmp(text, "the lla", 7) && !strncmp(text + 8, "a walks ov", 10));
    for (int i = 0; i < 2; i++) {
        const struct json *each = i ? json_next(json_first(filled)) : json_first(filled);
        double p = json_number(json_get(each, "probability"));
        CHECK(p > 0.02 && p <= 1);
        CHECK(json_string(json_get(each, "text"))[0] == text[i ? 18 : 7]);
    }
    if (strcmp(text, "the llama walks over snow") != 0) fail_msg("%s", text);
    json_free(v);
    CHECK(LLAMERO(&out, NULL, "generate", run, "--fill", "<mask><mask>", "--seed", "5") == 0);
    CHECK(LLAMERO(&again, NULL, "generate", run, "--fill", "<mask><mask>", "--seed", "5") == 0);
    CHECK(!strcmp(out.data, again.data) && !strstr(out.data, "mask"));
    text_release(&out), text_release(&again);
    free(run);
}

TEST(fill_requires_masks_and_a_masked_model)
{
    char *run = trained("2");
    struct text err = {0}, out = {0};
    struct json *v;
    CHECK(LLAMERO(NULL, &err, "generate", run, "--fill", "no masks") == 64);
    CHECK(strstr(err.data, "must contain <mask>"));
    CHECK(LLAMERO(NULL, &err, "generate", run, "--fill", "a <mask>", "objective.name=causal") ==
          78);
    CHECK(strstr(err.data, "requires a masked model"));
    /* a BOS with the ID of the mask token is not a mask of the text */
    CHECK(LLAMERO(&out, NULL, "generate", run, "--fill", "a <mask>", "data.bos=true", "--json",
                  "objective.mask_token=<|begin_of_text|>") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "generate", &v));
    CHECK(json_count(json_get(v, "filled")) == 1);
    json_free(v);
    text_release(&out);
    text_release(&err);
    free(run);
}
