// SPDX-License-Identifier: Apache-2.0
#include "app/plan_fit.h"

#include "system/runs.h"

#define MODEL_8B                                                                                   \
    "model.name=llama3.1", "model.flavor=8B", "model.vocab_size=128256",                           \
        "data.tokenizer=", "training.seq_len=8192", "training.local_batch_size=1",                 \
        "device.hardware=h100", "training.dataset_path=/nowhere.txt"

static char *empty_config(void)
{
    char *path = file_join(test_folder(), "run.toml");
    CHECK_STATUS(OK, file_write(path, "", 0));
    return path;
}

TEST(plan_fit_lists_sets_of_options_that_plan_says_fit)
{
    struct text out = {0};
    struct json *fit, *plan;
    char *config = empty_config();
    CHECK(LLAMERO(&out, NULL, "plan", config, "--fit", "--json", "--ranks", "2", MODEL_8B) == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "plan", &fit));
    CHECK(!json_true(json_get(fit, "fits")) && json_count(json_get(fit, "options")) >= 3);
    const struct json *sets = json_get(fit, "sets");
    CHECK(json_count(sets) > 0);
    for (const struct json *v = json_first(sets); v; v = json_next(v)) {
        const char *args[40] = {"plan", config, "--json", "--ranks", "2", MODEL_8B};
        const char *text = json_string(json_get(v, "settings"));
        char *settings = heap_strdup(text);
        int count = 13;
        for (char *word = strtok(settings, " "); word; word = strtok(NULL, " "))
            args[count++] = word;
        CHECK(test_llamero(&out, NULL, args) == 0);
        CHECK_STATUS(OK, json_parse(out.data, out.len, "plan", &plan));
        CHECK(json_true(json_get(json_get(plan, "available"), "fits")));
        CHECK_NEAR(json_number(json_get(plan, "step_seconds")) /
                       json_number(json_get(v, "step_seconds")),
                   1, 1e-5);
        json_free(plan);
        free(settings);
    }
    json_free(fit);
    text_release(&out);
    free(config);
}

TEST(plan_fit_says_what_each_option_costs)
{
    struct text out = {0}, err = {0};
    char *config = empty_config();
    CHECK(LLAMERO(&out, NULL, "plan", config, "--fit", "--ranks", "2", MODEL_8B) == 0);
    CHECK(strstr(out.data, "as configured: ") &&
          strstr(out.data, "of 79.65 GiB available on h100"));
    CHECK(strstr(out.data, "optimizer.state_dtype=bfloat16") &&
          strstr(out.data, "other rounding: moments keep 8 significant bits"));
    CHECK(strstr(out.data, "fits with each of these, the fastest first:"));
    CHECK(LLAMERO(&out, NULL, "plan", config, "--fit", "--ranks", "8", MODEL_8B) == 0);
    CHECK(strstr(out.data, "The run fits as configured."));
    CHECK(LLAMERO(&out, &err, "plan", config, "--fit", "--ranks", "2", MODEL_8B,
                  "device.memory_bytes=2e10") == 78);
    CHECK(strstr(err.data, "--fit: with all of these options a rank still needs more than 18.63"));
    text_release(&out), text_release(&err);
    free(config);
}
