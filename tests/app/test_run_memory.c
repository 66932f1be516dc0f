// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "app/run_memory.h"
#include "backends/gpu/gpu.h"
#include "metrics/memory.h"

TEST(check_fails_where_the_memory_of_a_rank_does_not_fit)
{
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.txt");
    const char *config = test_path(folder, "run.toml");
    struct text err = {0};
    runs_write_corpus(corpus, 3000);
    runs_write_config(config, corpus);
    CHECK(LLAMERO(NULL, &err, "check", config, "device.memory_bytes=2e6") == 78);
    CHECK(strstr(err.data, "not enough memory: a rank requires "));
    CHECK(strstr(err.data, " MiB, this machine has 1.91 MiB per rank"));
    CHECK(LLAMERO(NULL, &err, "check", config, "device.memory_bytes=2e6",
                  "--allow-oversubscribe") == 0);
    CHECK(LLAMERO(NULL, &err, "check", config, "device.hardware=mi250x", "model.dim=8192",
                  "model.n_layers=80", "model.n_heads=64", "model.head_dim=128") == 78);
    CHECK(strstr(err.data, "mi250x has 64.00 GiB per rank"));
    text_release(&err);
}

TEST(check_and_plan_find_the_data_stage_that_needs_the_most_memory)
{
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.txt");
    const char *config = test_path(folder, "run.toml");
    struct text err = {0}, out = {0};
    struct json *v;
    runs_write_corpus(corpus, 3000);
    runs_write_config(config, corpus);
#define STAGES                                                                                     \
    "data.stage.0.at_step=10", "data.stage.0.seq_len=512", "data.stage.1.at_step=20",              \
        "data.stage.1.seq_len=64"
    CHECK(LLAMERO(NULL, &err, "check", config, STAGES, "device.memory_bytes=2e6") == 78);
    CHECK(strstr(err.data, "MiB in data stage 1, this machine has 1.91 MiB"));
    CHECK(LLAMERO(&out, NULL, "plan", config, STAGES) == 0);
    CHECK(strstr(out.data, "data stage    1, steps 11 to 20, needs the most memory of 3"));
    CHECK(strstr(out.data, "4 rows of 512 tokens"));
    CHECK(LLAMERO(&out, NULL, "plan", config, STAGES, "--json") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "plan", &v));
    CHECK(json_number(json_get(v, "data_stage")) == 1);
    json_free(v);
    CHECK(LLAMERO(&out, NULL, "plan", config, STAGES, "--json", "training.steps=10") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "plan", &v));
    CHECK(json_number(json_get(v, "data_stage")) == 0);
    json_free(v);
    CHECK(LLAMERO(NULL, &err, "check", config, STAGES, "data.stage.1.seq_len=100000000") == 78);
    CHECK(LLAMERO(&out, NULL, "plan", config) == 0 && !strstr(out.data, "data stage"));
    text_release(&err), text_release(&out);
}

static enum status plan(struct run_memory *m, const char *setting, int ranks)
{
    static const char *const common[] = {
        "model.dim=64",    "training.dataset_path=mock", "model.vocab_size=1000",
        "data.prefetch=1", "data.validation_share=0.1",  "checkpoint.enable=true"};
    const char *settings[7];
    struct config c;
    struct model_shape shape;
    memcpy(settings, common, sizeof common);
    settings[6] = setting;
    CHECK_STATUS(OK, config_load(&c, NULL, settings, 7));
    CHECK_STATUS(OK, model_shape_resolve(&shape, &c.model, 0));
    enum status st = run_memory_plan(m, &c, &shape, NULL, ranks);
    config_release(&c);
    return st;
}

static size_t needed(const char *setting, int ranks)
{
    struct run_memory m;
    CHECK_STATUS(OK, plan(&m, setting, ranks));
    size_t bytes = run_memory_needed(&m) - run_memory_fullest(&m)->plan.bytes[MEMORY_program];
    run_memory_release(&m);
    return bytes;
}

TEST(memory_of_a_rank_counts_the_padding_of_the_vocabulary_and_the_fullest_stage)
{
    struct run_memory m;
    size_t none = needed("model.vocab_multiple=1", 1),
           padded = needed("model.vocab_multiple=4096", 1);
    /* Weights, gradients and two moments of embedding and head, in f32, at least. */
    CHECK(padded - none >= 4 * 2 * (4096 - 1000) * 64 * sizeof(float));
    CHECK_STATUS(OK, plan(&m, "parallelism.pipeline_parallel_degree=2", 2));
    CHECK(m.stages == 2);
    for (int i = 0; i < 2; i++)
        CHECK(memory_plan_total(&m.of_stage[i].plan) <= run_memory_needed(&m));
    run_memory_release(&m);
}

TEST(memory_of_a_rank_counts_the_loader_of_validation_data)
{
    struct run_memory without, with;
    CHECK_STATUS(OK, plan(&without, "validation.enable=false", 1));
    CHECK_STATUS(OK, plan(&with, "validation.enable=true", 1));
    CHECK(run_memory_fullest(&with)->plan.bytes[MEMORY_data] >
          run_memory_fullest(&without)->plan.bytes[MEMORY_data]);
    run_memory_release(&without), run_memory_release(&with);
}

TEST(plan_counts_the_conversion_buffers_of_a_save)
{
    static const struct {
        const char *setting;
        size_t mebibytes;
    } rows[] = {{"optimizer.state_dtype=float32", 9},
                {"optimizer.state_dtype=bfloat16", 13},
                {"optimizer.state_dtype=int8", 17},
                {"device.hardware=h200", 13}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct run_memory m;
        CHECK_STATUS(OK, plan(&m, rows[i].setting, 1));
        const struct memory_plan *p = &run_memory_fullest(&m)->plan;
        CHECK(p->bytes[MEMORY_checkpoint] + p->host[MEMORY_checkpoint] == rows[i].mebibytes << 20);
        run_memory_release(&m);
    }
}

TEST(ranks_of_a_node_share_its_memory_unless_the_hardware_is_named)
{
    static const char *const settings[] = {"device.node_ranks=4", "device.hardware=h100",
                                           "device.node_ranks=1"};
    double bytes[3];
    struct run_memory m;
    CHECK_STATUS(OK, plan(&m, settings[0], 1));
    for (int i = 0; i < 3; i++) {
        struct config c;
        CHECK_STATUS(OK, config_load(&c, NULL, &settings[i], 1));
        CHECK_STATUS(OK, run_memory_available(&m, &c, 0, &bytes[i]));
        config_release(&c);
    }
    CHECK_NEAR(bytes[2], 4 * bytes[0], 1);
    CHECK_NEAR(bytes[1], 81559 * 0x1p20, 1);
    run_memory_release(&m);
}

TEST(ranks_of_a_node_with_gpus_divide_its_host_memory)
{
    static const struct {
        const char *setting;
        double ranks;
    } rows[] = {{"device.node_ranks=0", 8}, {"device.node_ranks=4", 4}};
    struct run_memory m = {.machine = {.hardware = hardware_row(HARDWARE_h100)}};
    CHECK_STATUS(OK, gpu_emu32_open(&m.machine.queue, 0));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct config c;
        CHECK_STATUS(OK, config_load(&c, NULL, &rows[i].setting, 1));
        double all = (double)memory_total_bytes();
        CHECK(run_memory_host_available(&m, &c, 0) == all / rows[i].ranks);
        CHECK(run_memory_host_available(&m, &c, 2) == all / 2);
        config_release(&c);
    }
    gpu_emu32_close(m.machine.queue);
}
