// SPDX-License-Identifier: Apache-2.0
#include "app/plan_search.h"

#include "system/runs.h"

#define MODEL_8B                                                                                   \
    "model.name=llama3.1", "model.flavor=8B", "model.vocab_size=128256",                           \
        "data.tokenizer=", "training.seq_len=8192", "training.dataset_path=/nowhere.txt",          \
        "device.hardware=h100"

static char *empty_config(void)
{
    char *path = file_join(test_folder(), "run.toml");
    CHECK_STATUS(OK, file_write(path, "", 0));
    return path;
}

/* Splits "a=1 b=2" in place; returns the number of words. */
static int split(char *text, const char **words)
{
    int count = 0;
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) words[count++] = word;
    return count;
}

TEST(plan_search_lists_layouts_that_plan_estimates_alike)
{
    struct text out = {0}, err = {0};
    struct json *found, *plan;
    char *config = empty_config();
    CHECK(LLAMERO(&out, &err, "plan", config, "--search", "--ranks", "64", "--json", MODEL_8B,
                  "metrics.peak_flops=5e14", "training.global_batch_size=256") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "plan", &found));
    const struct json *layouts = json_get(found, "layouts"), *best = json_first(layouts);
    CHECK(json_count(layouts) == 10 && strstr(out.data, "\"stopped_early\": false"));
    double before = 0;
    for (const struct json *v = best; v; v = json_next(v)) {
        double seconds = json_number(json_get(v, "step_seconds"));
        CHECK(seconds >= before && json_number(json_get(v, "memory_bytes")) <= 81559 * 0x1p20);
        CHECK(!json_next(v) == !json_get(v, "beats_next"));
        before = seconds;
    }
    const char *args[40] = {
        "plan", config, "--ranks", "64", "--json", MODEL_8B, "metrics.peak_flops=5e14"};
    char *settings = heap_strdup(json_string(json_get(best, "settings")));
    CHECK(split(settings, args + 13) > 8);
    CHECK(test_llamero(&out, &err, args) == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "plan", &plan));
    CHECK_NEAR(json_number(json_get(plan, "step_seconds")) /
                   json_number(json_get(best, "step_seconds")),
               1, 1e-5);
    CHECK_NEAR(json_number(json_get(json_get(plan, "estimate"), "mfu")) /
                   json_number(json_get(best, "mfu")),
               1, 1e-5);
    const struct json *rank = json_first(json_get(plan, "ranks"));
    CHECK_NEAR(json_number(json_get(rank, "total")) / json_number(json_get(best, "memory_bytes")),
               1, 1e-2); /* of the first rank; others may need more */
    json_free(found), json_free(plan);
    text_release(&out), text_release(&err);
    free(settings), free(config);
}

TEST(plan_search_prints_a_table_of_eighty_columns_with_reasons)
{
    struct text out = {0};
    char *config = empty_config();
    CHECK(LLAMERO(&out, NULL, "plan", config, "--search", "--ranks", "16", MODEL_8B,
                  "training.global_batch_size=64") == 0);
    CHECK(strstr(out.data, "best layouts of 16 h100, 64 rows of 8192 tokens per step:"));
    CHECK(strstr(out.data, " s faster than 2: ") && strstr(out.data, "settings of layout 1:"));
    CHECK(strstr(out.data, "  parallelism.tensor_parallel_degree="));
    for (const char *line = out.data; *line; line += strcspn(line, "\n") + 1)
        CHECK(strcspn(line, "\n") <= 80);
    text_release(&out);
    free(config);
}

/* With activations in host memory, also the copies to and from there. */
TEST(plan_search_lists_all_parts_of_a_steps_time)
{
    struct text out = {0};
    struct json *found;
    char *config = empty_config();
    bool has_host = false;
    CHECK(LLAMERO(&out, NULL, "plan", config, "--search", "--ranks", "4", "--json", MODEL_8B,
                  "training.global_batch_size=16", "activation_checkpoint.offload=true") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "plan", &found));
    for (const struct json *v = json_first(json_get(found, "layouts")); v; v = json_next(v)) {
        double sum = 0;
        const struct json *parts = json_get(v, "seconds");
        for (const struct json *p = json_first(parts); p; p = json_next(p)) sum += json_number(p);
        CHECK_NEAR(sum / json_number(json_get(v, "step_seconds")), 1, 1e-4);
        has_host |= json_get(parts, "host") != NULL;
    }
    CHECK(has_host);
    json_free(found);
    text_release(&out);
    free(config);
}

TEST(plan_search_explains_why_there_is_no_layout)
{
    struct text err = {0};
    char *config = empty_config();
    CHECK(LLAMERO(NULL, &err, "plan", config, "--search", "--ranks", "1", MODEL_8B,
                  "training.global_batch_size=64") == 78);
    CHECK(strstr(err.data, "of 1 rank fits 79.65 GiB per rank on h100: use more ranks"));
    CHECK(LLAMERO(NULL, &err, "plan", config, "--search", "--ranks", "12", MODEL_8B,
                  "parallelism.tensor_parallel_degree=8") == 78);
    CHECK(strstr(err.data, "set training.global_batch_size"));
    CHECK(LLAMERO(NULL, &err, "plan", config, "--search", "--ranks", "7919", MODEL_8B,
                  "training.global_batch_size=64") == 78);
    CHECK(strstr(err.data, "no layout of 7919 ranks suits the model"));
    text_release(&err);
    free(config);
}
