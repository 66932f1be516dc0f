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

TEST(plan_sizes_an_8b_model_without_allocating_it)
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

/* Staging of a checkpoint is 12 bytes per parameter of the host, not of the device. */
TEST(plan_separates_gpu_and_host_memory)
{
    struct text out = {0};
    struct json *plan;
    char *config = empty_config();
#define ON_H200                                                                                    \
    "model.vocab_size=128256", "device.hardware=h200", "checkpoint.async_mode=async", SHAPE
    CHECK(LLAMERO(&out, NULL, "plan", config, "--json", "checkpoint.enable=true", ON_H200) == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "plan", &plan));
    const struct json *rank = json_first(json_get(plan, "ranks"));
    const struct json *device = json_get(rank, "memory_bytes"),
                      *host = json_get(rank, "host_memory_bytes");
    double sum = 0;
    for (const struct json *v = json_first(host); v; v = json_next(v)) sum += json_number(v);
    CHECK(sum == json_number(json_get(rank, "host_total")));
    CHECK(json_number(json_get(device, "checkpoint")) == 0);
    CHECK_NEAR(json_number(json_get(host, "checkpoint")) / (12 * 8030261248.0), 1, 1e-3);
    CHECK(json_number(json_get(device, "scratch")) > 2112.0 * (1 << 20));
    CHECK(json_number(json_get(device, "context")) > 0);
    const struct json *available = json_get(plan, "available");
    CHECK(json_number(json_get(available, "memory_bytes")) == 143771 * 0x1p20);
    CHECK(json_number(json_get(available, "host_memory_bytes")) == 250e9);
    json_free(plan);
    CHECK(LLAMERO(&out, NULL, "plan", config, "checkpoint.enable=true", ON_H200,
                  "device.memory_bytes=1e12", "device.host_memory_bytes=64e9") == 0);
    CHECK(strstr(out.data, "host memory per rank") && strstr(out.data, "of 59.60 GiB available"));
    CHECK(strstr(out.data, "bottleneck    on the host it needs more memory"));
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
    CHECK(LLAMERO(&out, NULL, "plan", config, "data.tokenizer=bytes", "model.dim=32",
                  "model.n_layers=2", "model.n_heads=4", "model.n_kv_heads=2",
                  "model.ffn_hidden=64", "training.dataset_path=/nowhere.txt") == 0);
    CHECK(strstr(out.data, " MiB  activations") && strstr(out.data, " MiB  total"));
    text_release(&out);
    free(config);
}

#define RANKS "training.dataset_path=/nowhere.txt", "model.vocab_size=128256", SHAPE

TEST(plan_shards_memory_over_ranks_and_counts_received_bytes)
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
    CHECK_NEAR(share, 1.0 / 16, 1e-3); /* except norms, which are replicated over two ranks */
    double saved = 12 * json_number(json_get(whole, "parameters"));
    CHECK(json_number(json_get(whole, "checkpoint_bytes")) == saved);
    CHECK(json_number(json_get(parts, "checkpoint_bytes")) == saved);
    /* bf16 weights are all-gathered twice, except those of the last two blocks and the head, which
     * backward finds still gathered, and the embedding's, which backward does not read; f32
     * gradients are reduce-scattered once.  Each rank receives 7 of 8 shards. */
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

TEST(plan_rejects_an_invalid_layout_with_suggestions)
{
    struct text err = {0};
    char *config = empty_config();
    CHECK(LLAMERO(NULL, &err, "plan", config, "--ranks", "3", RANKS,
                  "parallelism.tensor_parallel_degree=3") == 78);
    CHECK(strstr(err.data, "n_heads = 32; try 2 or 4"));
    text_release(&err);
    free(config);
}

/* A number of the estimate: a part's seconds, or a member. */
static double estimated(const struct json *plan, const char *part)
{
    const struct json *e = json_get(plan, "estimate"), *of = json_get(json_get(e, "seconds"), part);
    return json_number(of ? of : json_get(e, part));
}

static struct json *plan_on(const char *config, const char *ranks, const char *one, const char *two,
                            const char *three)
{
    struct text out = {0};
    struct json *plan;
    CHECK(LLAMERO(&out, NULL, "plan", config, "--json", "--ranks", ranks, RANKS,
                  "device.hardware=h100", "device.efficiency=0.5", one, two, three) == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "plan", &plan));
    text_release(&out);
    return plan;
}

TEST(plan_estimates_step_time_on_other_hardware)
{
    char *config = empty_config();
    struct json *p = plan_on(config, "8", "device.memory_bytes=1e12",
                             "activation_checkpoint.mode=none", "training.local_batch_size=1");
    double seconds = json_number(json_get(p, "step_seconds")), sum = 0;
    const struct json *parts = json_get(json_get(p, "estimate"), "seconds");
    for (const struct json *v = json_first(parts); v; v = json_next(v)) sum += json_number(v);
    CHECK_NEAR(sum / seconds, 1, 1e-4);
    /* GEMMs of 7.5e9 weights per token and causal attention, at 495e12 FLOP/s. */
    double V = 128256, D = 4096, block = D * (4096 * 2 + 1024 * 2) + 3 * D * 14336;
    double attention = 7.0 * 32 * 4096 * 8192 * (1 + 1.0 / 8192);
    double flops = 8192 * (6 * (V * D + 32 * block) + attention);
    CHECK_NEAR(estimated(p, "matmul") / (flops / (0.5 * 989.4e12)), 1, 1e-3);
    CHECK_NEAR(estimated(p, "tokens_per_second_per_rank") * seconds / 8192, 1, 1e-4);
    const struct json *e = json_get(p, "estimate");
    CHECK(!strcmp(json_string(json_get(e, "limit")), "matmul"));
    CHECK(!strcmp(json_string(json_get(e, "hardware")), "h100"));
    json_free(p);
    free(config);
}

TEST(plan_names_the_bottleneck)
{
    const struct {
        const char *ranks, *settings[3], *limit;
    } cases[] = {
        {"64",
         {"device.network_rate=1e8", "device.memory_bytes=1e12", "training.seed=1"},
         "network"},
        {"8",
         {"parallelism.tensor_parallel_degree=8", "device.node_rate=1e9",
          "device.memory_bytes=1e12"},
         "node_links"},
        {"8",
         {"device.memory_rate=1e10", "device.memory_bytes=1e12", "training.seed=1"},
         "memory_rate"},
        {"8", {"device.memory_bytes=1e10", "training.seed=1", "training.seed=1"}, "memory_bytes"},
    };
    char *config = empty_config();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *s = cases[i].settings;
        struct json *p = plan_on(config, cases[i].ranks, s[0], s[1], s[2]);
        CHECK(!strcmp(json_string(json_get(json_get(p, "estimate"), "limit")), cases[i].limit));
        json_free(p);
    }
    free(config);
}

TEST(plan_exposes_more_tensor_parallel_communication_across_nodes)
{
    char *config = empty_config();
    const char *tp = "parallelism.tensor_parallel_degree=8", *room = "device.memory_bytes=1e12";
    struct json *inside = plan_on(config, "16", tp, room, "device.node_ranks=8");
    struct json *across = plan_on(config, "16", tp, room, "device.node_ranks=4");
    CHECK(estimated(across, "tp") > 2 * estimated(inside, "tp"));
    CHECK_NEAR(estimated(across, "matmul") / estimated(inside, "matmul"), 1, 1e-9);
    json_free(inside), json_free(across);
    free(config);
}

TEST(plan_prints_a_breakdown_of_step_time)
{
    struct text out = {0}, err = {0};
    char *config = empty_config();
    CHECK(LLAMERO(&out, NULL, "plan", config, "--ranks", "16", "device.hardware=mi250x", RANKS) ==
          0);
    CHECK(strstr(out.data, "step time on mi250x") && strstr(out.data, "tokens/s per rank, MFU"));
    CHECK(strstr(out.data, "bottleneck "));
    CHECK(LLAMERO(NULL, &err, "plan", config, "device.hardware=h300", RANKS) == 78);
    CHECK(strstr(err.data, "mi300x"));
    text_release(&out), text_release(&err);
    free(config);
}

TEST(plan_sizes_each_pipeline_stage_and_counts_the_bubble)
{
    char *config = empty_config();
    const char *pp = "parallelism.pipeline_parallel_degree=4", *room = "device.memory_bytes=1e12";
    struct json *few = plan_on(config, "8", pp, room, "training.global_batch_size=8");
    struct json *many = plan_on(config, "8", pp, room, "training.global_batch_size=64");
    struct json *alone = plan_on(config, "2", room, room, "training.global_batch_size=64");
    const struct json *first = json_first(json_get(few, "ranks")), *last = first;
    while (json_next(last)) last = json_next(last);
    double one = json_number(json_get(json_get(first, "memory_bytes"), "activations"));
    double end = json_number(json_get(json_get(last, "memory_bytes"), "activations"));
    CHECK(json_count(json_get(few, "ranks")) == 8 && one != end);
    double whole = json_number(json_get(alone, "step_seconds"));
    double share = estimated(few, "bubble") / json_number(json_get(few, "step_seconds"));
    double less = estimated(many, "bubble") / json_number(json_get(many, "step_seconds"));
    /* 3 of 4 + 3 slots, of 32 + 3; the last stage also has the head, so it takes longer. */
    CHECK(share > 0.3 && share < 3.0 / 7 && less > 0.06 && less < 3.0 / 35);
    CHECK(json_number(json_get(many, "step_seconds")) > whole / 4);
    json_free(few), json_free(many), json_free(alone);
    free(config);
}

TEST(plan_needs_no_tokenizer_where_the_vocabulary_is_known)
{
    struct text out = {0}, err = {0};
    char *config = empty_config();
    CHECK(LLAMERO(&out, &err, "plan", config, "model.flavor=8B", "training.seq_len=512",
                  "model.tokenizer_path=/nowhere.model", "training.dataset_path=/nowhere.txt",
                  "model.vocab_size=128256", "parallelism.tensor_parallel_degree=8",
                  "device.hardware=b200") == 0);
    CHECK(strstr(out.data, "vocabulary 128256"));
    CHECK(strstr(out.data, "ranks         8: tp 8"));
    CHECK(strstr(err.data, "without the tokenizer: model.tokenizer_path: /nowhere.model"));
    text_release(&out), text_release(&err);
    free(config);
}
