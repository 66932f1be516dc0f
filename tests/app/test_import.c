// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "base/json.h"

#define NXDT  "tests/config/data/nxdt-hf-llama3-70b.yaml"
#define LLAMA "tests/config/data/megatron-llama3.sh"

TEST(config_import_prints_a_file_that_plan_accepts)
{
    struct text out = {0}, err = {0}, plan = {0};
    const char *path = test_path(test_folder(), "run.toml");
    CHECK(LLAMERO(&out, &err, "config", "import", NXDT, "training.steps=5", "trainer.devices=64",
                  "trainer.num_nodes=8", "lr_scheduler.warmup_steps=2") == 0);
    CHECK(strstr(out.data, "steps = 5\n") && strstr(out.data, "# For 512 ranks."));
    CHECK(strstr(err.data, "defects of the original: 2"));
    CHECK_STATUS(OK, file_write(path, out.data, out.len));
    CHECK(LLAMERO(&plan, NULL, "plan", path, "--ranks", "512", "--json") == 0);
    CHECK(strstr(plan.data, "70553706496"));
    text_release(&out), text_release(&err), text_release(&plan);
}

TEST(config_import_lists_each_key_as_json)
{
    struct text out = {0};
    struct json *root;
    CHECK(LLAMERO(&out, NULL, "config", "import", LLAMA, "MODEL_SIZE=8", "--json") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "out", &root));
    CHECK(!strcmp(json_string(json_get(root, "format")), "Megatron-LM"));
    CHECK(json_count(json_get(root, "keys")) > 60);
    json_free(root);
    text_release(&out);
}

TEST(config_import_accepts_flags_without_a_file)
{
    struct text out = {0};
    CHECK(LLAMERO(&out, NULL, "config", "import", "--from", "megatron", "--num-layers", "2",
                  "--hidden-size", "64", "--num-attention-heads", "4", "--swiglu",
                  "--disable-bias-linear", "--normalization", "RMSNorm",
                  "--position-embedding-type", "rope", "--micro-batch-size", "1", "--train-iters",
                  "3", "--lr", "1e-3", "--seq-length", "32", "--mock-data", "--tokenizer-type",
                  "NullTokenizer", "--vocab-size", "300", "--attention-dropout", "0",
                  "--hidden-dropout", "0", "job.description=x") == 0);
    CHECK(strstr(out.data, "n_layers = 2") && strstr(out.data, "description = \"x\""));
    text_release(&out);
}

TEST(config_import_rejects_invalid_input_with_the_right_exit_code)
{
    static const struct {
        const char *arguments[4];
        int code;
        const char *message;
    } cases[] = {
        {{"config", "import"}, 64, "a file is required"},
        {{"config", "import", "run.toml"}, 64, "TOML needs no conversion: llamero check run.toml"},
        {{"config", "import", "nowhere.yaml"}, 66, "nowhere.yaml"},
        {{"config", "import", NXDT, "word"}, 64, "expected key=value"},
        {{"config", "import", "--to", NXDT}, 64, "expected a file"},
        {{"config", "import", "--from", "deepspeed"}, 64, "must be megatron"},
        {{"config", "import", NXDT, "seed=x"}, 78, "command line: seed: debug.seed=x"},
        {{"config", "import", NXDT, "trainer.max_step=1"}, 78, "trainer.max_step"},
        {{"config", "import", LLAMA, "MODEL_SIZE=1"}, 78, "Model size not supported."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text err = {0};
        const char *const *a = cases[i].arguments;
        CHECK(LLAMERO(NULL, &err, a[0], a[1], a[2], a[3]) == cases[i].code);
        CHECK(strstr(err.data, cases[i].message));
        text_release(&err);
    }
}

TEST(an_imported_run_trains_at_the_original_learning_rates)
{
    struct text out = {0}, metrics = {0};
    const char *path = test_path(test_folder(), "run.toml");
    const char *dump = test_path(test_folder(), "out");
    struct text setting = {0};
    text_addf(&setting, "job.dump_folder=%s", dump);
    CHECK(LLAMERO(&out, NULL, "config", "import", "--from", "megatron", "--num-layers", "2",
                  "--hidden-size", "64", "--num-attention-heads", "4", "--swiglu",
                  "--disable-bias-linear", "--normalization", "RMSNorm",
                  "--position-embedding-type", "rope", "--untie-embeddings-and-output-weights",
                  "--micro-batch-size", "1", "--global-batch-size", "4", "--train-samples", "14",
                  "--lr-warmup-samples", "5", "--lr", "1e-3", "--seq-length", "64", "--mock-data",
                  "--tokenizer-type", "NullTokenizer", "--vocab-size", "300", "--eval-iters", "0",
                  "--log-interval", "1", "--attention-dropout", "0", "--hidden-dropout", "0",
                  setting.data) == 0);
    CHECK_STATUS(OK, file_write(path, out.data, out.len));
    CHECK(LLAMERO(NULL, NULL, "train", path) == 0);
    CHECK_STATUS(OK, file_read(test_path(dump, "metrics.jsonl"), 1 << 20, &metrics));
    /* 0; 4/5 of the warmup; then the decay, (14 - 8) / (14 - 5) */
    static const double rates[] = {0, 8e-4, 1e-3 * 6 / 9};
    const char *line = metrics.data;
    for (int i = 0; i < 3; i++) {
        const char *lr = strstr(line, "\"lr\":"), *loss = strstr(line, "\"loss\":");
        CHECK(lr && loss);
        CHECK_NEAR(strtod(lr + 5, NULL) * 1e3, rates[i] * 1e3, 1e-6);
        /* ln V + std^2 D / 2, before anything is learned */
        if (!i) CHECK_NEAR(strtod(loss + 7, NULL), log(300) + 0.0004 * 64 / 2, 0.02);
        line = strchr(lr, '\n') ? strchr(lr, '\n') : lr;
    }
    text_release(&out), text_release(&metrics), text_release(&setting);
}

TEST(config_import_refuses_keys_that_change_the_result)
{
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, &err, "config", "import", LLAMA, "MODEL_SIZE=8", "TE_FP8=1",
                  "TE_FP8_RECIPE=mxfp8") == 78);
    CHECK(!out.len && strstr(err.data, "config.accept_loss=--fp8-recipe\n"));
    text_clear(&out), text_clear(&err);
    CHECK(LLAMERO(&out, &err, "config", "import", LLAMA, "MODEL_SIZE=8", "TE_FP8=1",
                  "TE_FP8_RECIPE=mxfp8", "config.accept_loss=--fp8-recipe") == 0);
    CHECK(strstr(out.data, "accept_loss = [\"--fp8-recipe\"]"));
    CHECK(strstr(out.data, "# ACCEPTED, ALTHOUGH THE RESULT CHANGES:"));
    CHECK(strstr(err.data, "accepted, although the result changes:"));
    text_release(&out), text_release(&err);
}

TEST(a_lenient_config_import_lists_unknown_flags)
{
    struct text out = {0}, err = {0};
    const char *path = test_path(test_folder(), "train.sh");
    const char script[] = "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --swiglu "
                          "--num-attention-heads 4 --disable-bias-linear --normalization RMSNorm "
                          "--position-embedding-type rope --micro-batch-size 1 --train-iters 3 "
                          "--lr 1e-3 --seq-length 32 --mock-data --tokenizer-type NullTokenizer "
                          "--vocab-size 300 --attention-dropout 0 --hidden-dropout 0 "
                          "--our-own-flag 1 2 --another\n";
    CHECK_STATUS(OK, file_write(path, script, strlen(script)));
    CHECK(LLAMERO(NULL, &err, "config", "import", path) == 78);
    CHECK(strstr(err.data, "--our-own-flag: not a key of Megatron-LM"));
    text_clear(&err);
    CHECK(LLAMERO(&out, &err, "config", "import", "--lenient", path) == 0);
    CHECK(strstr(err.data, "unknown: --our-own-flag 1 2") &&
          strstr(err.data, "unknown: --another"));
    CHECK(strstr(out.data, "# UNKNOWN, AND NOT USED:") && strstr(out.data, "--our-own-flag = 1 2"));
    text_release(&out), text_release(&err);
}

TEST(config_import_splits_master_weights_that_do_not_fit_the_device)
{
    struct text out = {0};
    CHECK(LLAMERO(&out, NULL, "config", "import", LLAMA, "MODEL_SIZE=70", "FSDP=1", "RECOMPUTE=1",
                  "GPUS_PER_NODE=8", "device.hardware=h100") == 0);
    CHECK(strstr(out.data, "master_weights = \"split\""));
    text_clear(&out);
    CHECK(LLAMERO(&out, NULL, "config", "import", LLAMA, "MODEL_SIZE=8", "FSDP=1", "RECOMPUTE=1",
                  "GPUS_PER_NODE=8", "device.hardware=mi300x") == 0);
    CHECK(!strstr(out.data, "master_weights"));
    text_release(&out);
}
