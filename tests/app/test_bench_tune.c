// SPDX-License-Identifier: Apache-2.0
#include "app/bench_tune.h"
#include "test.h"

#include "base/file.h"
#include "tensor/tuning.h"

static const char config[] = "[model]\ndim = 32\nn_layers = 2\nn_heads = 4\nn_kv_heads = 2\n"
                             "ffn_hidden = 48\nvocab_size = 70\n"
                             "[training]\nlocal_batch_size = 2\nseq_len = 72\n"
                             "dataset_path = \"none\"\n"
                             "[parallelism]\ntensor_parallel_degree = 2\n"
                             "pipeline_parallel_degree = 2\n";

static const char *write_config(void)
{
    const char *path = test_path(test_folder(), "small.toml");
    CHECK_STATUS(OK, file_write(path, config, strlen(config)));
    return path;
}

static size_t entries(const char *path)
{
    struct tuning t;
    tuning_open(&t, path);
    size_t count = t.count;
    tuning_close(&t);
    return count;
}

TEST(bench_tune_times_the_gemms_of_a_rank_of_each_stage_once)
{
    struct text out = {0}, first = {0}, second = {0};
    const char *path = write_config(), *file = test_path(test_folder(), "gemm.json");
    CHECK(LLAMERO(&out, NULL, "bench", "--tune", file, path) == 0);
    CHECK(entries(file) >= 6); /* forward, backward: qkv, wo, w1 and w3, w2 and the head */
    CHECK_STATUS(OK, file_read(file, 1 << 20, &first));
    CHECK(strstr(first.data, " x 48 x 32")); /* w1 and w3, halved by tensor parallelism */
    CHECK(LLAMERO(&out, NULL, "bench", "--tune", file, path) == 0);
    CHECK_STATUS(OK, file_read(file, 1 << 20, &second));
    CHECK(!strcmp(first.data, second.data));
    text_release(&out), text_release(&first), text_release(&second);
}

TEST(bench_tune_continues_after_a_configuration_that_fails)
{
    struct text out = {0}, errors = {0};
    const char *path = write_config(), *file = test_path(test_folder(), "gemm.json");
    CHECK(LLAMERO(&out, &errors, "bench", "--tune", file, "missing.toml", path) == 66);
    CHECK(strstr(errors.data, "missing.toml: not timed"));
    CHECK(entries(file) >= 6);
    CHECK(LLAMERO(&out, &errors, "bench", "--tune", file) == 64);
    text_release(&out), text_release(&errors);
}
