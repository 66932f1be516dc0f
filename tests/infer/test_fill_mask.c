// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"
#include "tokenizer/rig.h"

/* Trains a masked or diffusion model on one repeated sentence; returns the folder of the run.
 * vocab_size "0": the tokenizer's. */
static char *trained(const char *objective, const char *steps, const char *vocab_size)
{
    const char *folder = test_folder();
    char *corpus = file_join(folder, "corpus.txt"), *config = file_join(folder, "run.toml");
    char *dump = file_join(folder, "out");
    struct text t = {0}, settings = {0};
    for (int i = 0; i < 500; i++) text_adds(&t, "the llama walks over snow\n");
    CHECK_STATUS(OK, file_write(corpus, t.data, t.len));
    runs_write_config(config, corpus);
    text_addf(&settings,
              "objective.name=%s objective.mask_token=<|mask|> objective.mask_probability=0.2 "
              "model.dim=64 training.local_batch_size=8 training.global_batch_size=8 "
              "training.steps=%s lr_scheduler.total_steps=%s optimizer.lr=1e-2 "
              "model.vocab_size=%s",
              objective, steps, steps, vocab_size);
    CHECK(runs_train(config, dump, settings.data, NULL) == 0);
    text_release(&t), text_release(&settings);
    free(corpus), free(config);
    return dump;
}

TEST(masks_are_filled_in_with_the_original_text)
{
    char *run = trained("masked", "500", "0");
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
        CHECK(p > 0.5 && p <= 1);
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
    char *run = trained("masked", "2", "0");
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

TEST(a_text_that_normalization_makes_longer_than_the_row_is_rejected)
{
    char *run = trained("masked", "2", "300");
    char *own = file_join(run, "tokenizer.json"), *corpus = file_join(run, "../corpus.txt");
    struct text err = {0}, fill = {0}, json = {0}, nfkc = {0};
    CHECK(LLAMERO(NULL, NULL, "tokenizer", "train", "--vocab-size", "300", "--output", own,
                  corpus) == 0);
    CHECK_STATUS(OK, file_read(own, 1 << 20, &json));
    char *none = strstr(json.data, "\"normalizer\": null");
    CHECK(none);
    text_add(&nfkc, json.data, (size_t)(none - json.data));
    text_addf(&nfkc, "\"normalizer\": {\"type\": \"NFKC\"}%s",
              none + sizeof "\"normalizer\": null" - 1);
    CHECK_STATUS(OK, file_write(own, nfkc.data, nfkc.len));
    for (int i = 0; i < 20; i++) text_adds(&fill, "\xEF\xB7\xBA"); /* U+FDFA: 18 characters */
    text_adds(&fill, "<mask>");
    CHECK(LLAMERO(NULL, &err, "generate", run, "--tokenizer", own, "--fill", fill.data) == 64);
    CHECK(strstr(err.data, "fit in a row"));
    text_release(&err), text_release(&fill), text_release(&json), text_release(&nfkc);
    free(own), free(corpus), free(run);
}

TEST(ids_between_added_tokens_fill_in_no_mask)
{
    char *run = trained("masked", "1", "320");
    const char *path = test_path(test_folder(), "tokenizer.json");
    const struct json_parts sparse = {.added_tokens = "{\"id\": 300, \"content\": \"<|mask|>\"}"};
    struct text file = {0}, fill = {0};
    write_json(&file, &sparse);
    CHECK_STATUS(OK, file_write(path, file.data, file.len));
    for (int i = 0; i < 40; i++) text_adds(&fill, "<mask>");
    CHECK(LLAMERO(NULL, NULL, "generate", run, "--tokenizer", path, "--fill", fill.data,
                  "--temperature", "100") == 0);
    text_release(&file), text_release(&fill);
    free(run);
}

enum { MASK = 258 };

/* Fills in masks; checks their number and that none is left. */
static void check_filled(char *run, const char *steps, const char *block, const char *seed,
                         struct text *out)
{
    struct json *v;
    CHECK(LLAMERO(out, NULL, "generate", run, "--fill",
                  "the <mask><mask><mask><mask><mask> walks <mask><mask><mask><mask> snow",
                  "--json", "--steps", steps, "--block", block, "--seed", seed) == 0);
    CHECK_STATUS(OK, json_parse(out->data, out->len, "generate", &v));
    const struct json *filled = json_get(v, "filled");
    CHECK(json_count(filled) == 9);
    for (const struct json *each = json_first(filled); each; each = json_next(each)) {
        double p = json_number(json_get(each, "probability"));
        CHECK(json_number(json_get(each, "id")) != MASK && p > 0 && p <= 1);
    }
    json_free(v);
}

TEST(masks_are_filled_in_within_the_steps_and_blocks_requested)
{
    static const char *const cases[][2] = {{"0", "0"}, {"9", "0"}, {"1", "0"},  {"4", "0"},
                                           {"0", "4"}, {"3", "4"}, {"9", "1"},  {"7", "2"},
                                           {"2", "8"}, {"5", "9"}, {"5", "100"}};
    static const char *const rejected[][2] = {{"10", "0"}, {"2", "4"}, {"8", "1"}};
    static const char *const objectives[] = {"masked", "diffusion"};
    for (int k = 0; k < 2; k++) {
        char *run = trained(objectives[k], "5", "0");
        struct text out = {0}, again = {0}, err = {0};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            check_filled(run, cases[i][0], cases[i][1], "3", &out);
        check_filled(run, "5", "100", "3", &again);
        CHECK(!strcmp(out.data, again.data));
        check_filled(run, "5", "100", "4", &again);
        CHECK(strcmp(out.data, again.data));
        for (size_t i = 0; i < sizeof rejected / sizeof *rejected; i++) {
            CHECK(LLAMERO(NULL, &err, "generate", run, "--fill",
                          "<mask><mask><mask><mask><mask> and <mask><mask><mask><mask>", "--steps",
                          rejected[i][0], "--block", rejected[i][1]) == 64);
            CHECK(strstr(err.data, "at most one for each mask"));
        }
        text_release(&out), text_release(&again), text_release(&err);
        free(run);
    }
}

TEST(ids_that_the_tokenizer_does_not_have_are_not_filled_in)
{
    static const char *const objectives[] = {"masked", "diffusion"};
    for (int k = 0; k < 2; k++) {
        char *run = trained(objectives[k], "1", "2048");
        struct text out = {0};
        check_filled(run, "0", "0", "3", &out);
        text_release(&out);
        free(run);
    }
}

TEST(a_diffusion_model_continues_a_prompt)
{
    static const char want[] = " over snow";
    char *run = trained("diffusion", "800", "0");
    struct text out = {0}, again = {0};
    struct json *v;
    static const char *const ways[][2] = {{"0", "0"}, {"8", "4"}};
    for (int i = 0; i < 2; i++) {
        CHECK(LLAMERO(&out, NULL, "generate", run, "--prompt", "the llama walks", "--json",
                      "--max-tokens", "16", "--temperature", "0", "--steps", ways[i][0], "--block",
                      ways[i][1]) == 0);
        CHECK_STATUS(OK, json_parse(out.data, out.len, "generate", &v));
        const struct json *ids = json_get(v, "ids");
        CHECK(json_count(ids) > 4 && json_count(ids) <= 16);
        for (const struct json *id = json_first(ids); id; id = json_next(id))
            CHECK(json_number(id) < 256);
        CHECK(json_number(json_get(v, "prompt_tokens")) == 16); /* with BOS */
        const char *text = json_string(json_get(v, "text"));
        size_t same = 0;
        for (size_t n = 0; text[n] && want[n]; n++) same += text[n] == want[n];
        if (same < 8) fail_msg("%s", text);
        json_free(v);
    }
    CHECK(LLAMERO(&out, NULL, "generate", run, "--prompt", "the", "--seed", "5") == 0);
    CHECK(LLAMERO(&again, NULL, "generate", run, "--prompt", "the", "--seed", "5") == 0);
    CHECK(!strcmp(out.data, again.data) && !strstr(out.data, "mask"));
    text_release(&out), text_release(&again);
    free(run);
}

TEST(commands_that_require_another_objective_reject_a_diffusion_model)
{
    char *run = trained("diffusion", "2", "0");
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "eval", run, "--task", "tests/infer/data/none.jsonl") == 78);
    CHECK(strstr(err.data, "--task requires a causal or masked one"));
    CHECK(LLAMERO(NULL, &err, "generate", run, "--prompt", "a", "--max-tokens", "4", "--steps",
                  "5") == 64);
    CHECK(strstr(err.data, "--steps 5: must be between 1 and 4"));
    CHECK(LLAMERO(NULL, &err, "generate", run, "--prompt", "a", "--steps", "2",
                  "objective.name=causal") == 64);
    CHECK(strstr(err.data, "require --fill or a diffusion model"));
    text_release(&err);
    free(run);
}
