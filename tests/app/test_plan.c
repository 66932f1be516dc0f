// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#define SHAPE                                                                                      \
    "model.name=llama3.1", "model.flavor=8B", "data.tokenizer=", "training.seq_len=8192",          \
        "training.local_batch_size=1", "training.dataset_path=/nowhere.txt"

static char *empty_config(void)
{
    char *path = file_join(test_folder(), "run.toml");
    CHECK_STATUS(OK, file_write(path, "", 0));
    return path;
}

TEST(plan_counts_an_8b_model_without_its_memory)
{
    struct text out = {0};
    struct json *plan;
    char *config = empty_config();
    CHECK(LLAMERO(&out, NULL, "plan", config, "--json", "model.vocab_size=128256", SHAPE) == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "plan", &plan));
    CHECK(json_number(json_get(plan, "parameters")) == 8030261248.0);
    /* 6 (N - embedding) + 12 L H K T */
    CHECK(json_number(json_get(plan, "flops_per_token")) ==
          6.0 * (8030261248.0 - 128256.0 * 4096) + 12.0 * 32 * 4096 * 8192);
    CHECK(json_number(json_get(plan, "step_seconds")) > 0);
    const struct json *rank = json_first(json_get(plan, "ranks"));
    const struct json *bytes = json_get(rank, "memory_bytes");
    double sum = 0;
    for (const struct json *v = json_first(bytes); v; v = json_next(v)) sum += json_number(v);
    CHECK(sum == json_number(json_get(rank, "total")));
    CHECK_NEAR(json_number(json_get(bytes, "weights")) / (4 * 8030261248.0), 1, 1e-6);
    json_free(plan);
    text_release(&out);
    free(config);
}

TEST(plan_prints_a_table_for_people)
{
    struct text out = {0};
    char *config = empty_config();
    CHECK(LLAMERO(&out, NULL, "plan", config, "data.tokenizer=bytes",
                  "training.dataset_path=/nowhere.txt") == 0);
    CHECK(strstr(out.data, "activations") && strstr(out.data, "total"));
    text_release(&out);
    free(config);
}

TEST(plan_refuses_more_ranks_than_it_can_plan)
{
    struct text err = {0};
    char *config = empty_config();
    CHECK(LLAMERO(NULL, &err, "plan", config, "--ranks", "4", "data.tokenizer=bytes",
                  "training.dataset_path=/nowhere.txt") == 78);
    CHECK(strstr(err.data, "rank"));
    text_release(&err);
    free(config);
}
