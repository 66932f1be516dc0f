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

#define RANKS "training.dataset_path=/nowhere.txt", "model.vocab_size=128256", SHAPE

TEST(plan_gives_each_of_many_ranks_its_part_and_counts_what_they_receive)
{
    struct text one = {0}, many = {0};
    char *config = empty_config();
    struct json *whole, *parts;
    CHECK(LLAMERO(&one, NULL, "plan", config, "--json", RANKS) == 0);
    CHECK(LLAMERO(&many, NULL, "plan", config, "--json", "--ranks", "16", RANKS,
                  "parallelism.tensor_parallel_degree=2") == 0);
    CHECK_STATUS(OK, json_parse(one.data, one.len, "plan", &whole));
    CHECK_STATUS(OK, json_parse(many.data, many.len, "plan", &parts));
    const struct json *ranks = json_get(parts, "ranks");
    CHECK(json_count(ranks) == 16 && json_count(json_get(whole, "traffic")) == 0);
    const struct json *here = json_get(json_first(ranks), "memory_bytes");
    const struct json *all = json_get(json_first(json_get(whole, "ranks")), "memory_bytes");
    double share =
        json_number(json_get(here, "optimizer")) / json_number(json_get(all, "optimizer"));
    CHECK_NEAR(share, 1.0 / 16, 1e-3); /* but for norms, which two ranks have copies of */
    CHECK(json_number(json_get(parts, "checkpoint_bytes")) ==
          json_number(json_get(whole, "checkpoint_bytes")));
    /* bf16 weights come together twice, save the last two blocks' and the head's, which lie
     * there still, and the embedding's, which backward does not read; f32 gradients are cut apart
     * once: each rank receives 7 of 8. */
    double V = 128256, D = 4096, block = 2 * D + D * (4096 * 2 + 1024 * 2) + 3 * D * 14336;
    double gathered = 0, reduced = 0;
    for (const struct json *v = json_first(json_get(parts, "traffic")); v; v = json_next(v)) {
        if (strcmp(json_string(json_get(v, "group")), "shard")) continue;
        double bytes = json_number(json_get(v, "bytes"));
        if (!strcmp(json_string(json_get(v, "collective")), "all_gather")) gathered = bytes;
        if (!strcmp(json_string(json_get(v, "collective")), "reduce_scatter")) reduced = bytes;
    }
    CHECK_NEAR(gathered / (7.0 / 8 * (2 * V * D + 62 * block)), 1, 1e-3);
    CHECK_NEAR(reduced / (7.0 / 8 * 2 * (2 * V * D + 32 * block)), 1, 1e-3);
    json_free(whole), json_free(parts);
    text_release(&one), text_release(&many);
    free(config);
}

TEST(plan_refuses_a_layout_that_does_not_fit_and_says_what_would)
{
    struct text err = {0};
    char *config = empty_config();
    CHECK(LLAMERO(NULL, &err, "plan", config, "--ranks", "3", RANKS,
                  "parallelism.tensor_parallel_degree=3") == 78);
    CHECK(strstr(err.data, "n_heads = 32: 2 or 4 would"));
    text_release(&err);
    free(config);
}
