/* test_device.c -- a run with weights and activations in device memory that the host must not
 * touch, and kernels that run late, has the bits of a run on the host, on one rank and on many. */
// SPDX-License-Identifier: Apache-2.0
#include "system/device_runs.h"
#include "system/layouts.h"
#include "system/runs.h"

#define ASYNC   "checkpoint.async_mode=async"
#define FLOAT8  DELAYED, "model.converters=[\"float8\"]", "model.ffn_hidden=32"
#define DELAYED "float8.recipe_name=delayed"
#define SPLIT   "optimizer.master_weights=split", "metrics.console=nxdt"
#define NARROW  "optimizer.state_dtype=bfloat16"
#define MUON    "optimizer.name=Muon"
#define EMA     "optimizer.ema_decay=0.9"

TEST(a_run_on_a_device_has_the_bits_of_a_run_on_the_host)
{
    static const struct {
        int ranks;
        const char *settings[10];
    } runs[] = {
        {1, {SHARD(1), ASYNC}},
        {1, {SHARD(1), HALF, FLOAT8}},
        {2, {SHARD(2), HALF, "model.converters=[\"float8\"]", "model.ffn_hidden=32"}},
        {2, {SHARD(2), ASYNC, HALF}},
        {4, {SHARD(4), ZERO1}},
        {4, {COPIES(2), TP(2)}},
        {2, {TP(2), HALF, "model.converters=[\"float8\"]", "model.ffn_hidden=32"}},
        {2, {CP(2), HALF}},
        {2, {CP(2), HALF, "model.qk_norm=true", "training.z_loss=0.01"}},
        {4, {SHARD(2), TP(2), "model.qk_norm=true", "training.z_loss=0.01"}},
        {2, {TP(2), HALF, "model.post_norm=true"}},
        {4, {SHARD(2), TP(2), HALF, "model.attention_bias=all", "model.mlp_bias=true"}},
        {4, {PP(2), SHARD(2)}},
        {1, {SHARD(1), HALF, SPLIT, NARROW}},
        {4, {SHARD(2), TP(2), HALF, SPLIT, NARROW, ASYNC}},
        {4, {SHARD(2), TP(2), HALF, SPLIT, EIGHT_BIT}},
        {1, {SHARD(1), HALF, SPLIT, EIGHT_BIT, BF16_GRADIENTS}},
        {4, {COPIES(2), SHARD(2), BF16_GRADIENTS, HALF, SPLIT, NARROW}},
        {1, {SHARD(1), MUON}},
        {4, {SHARD(2), TP(2), HALF, SPLIT, NARROW, MUON}},
        {1, {SHARD(1), EMA, ASYNC}},
        {2, {SHARD(2), HALF, SPLIT, BF16_GRADIENTS, EMA}},
    };
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i += TEST_SLOWED ? 2 : 1) {
        const char *host = test_folder(), *device = test_folder(), *again = test_folder();
        device_run_train(ON_HOST, runs[i].ranks, runs[i].settings, corpus, host);
        device_run_train(OVER_STAGED, runs[i].ranks, runs[i].settings, corpus, device);
        device_run_check_same(test_path(host, "checkpoint/step-6"),
                              test_path(device, "checkpoint/step-6"));
        CHECK_STATUS(OK, file_make_dirs(test_path(again, "checkpoint")));
        const char *argv[] = {"cp", "-r", test_path(device, "checkpoint/step-3"),
                              test_path(again, "checkpoint"), NULL};
        CHECK(test_run(argv, NULL, NULL) == 0);
        device_run_train(OVER_STAGED, runs[i].ranks, runs[i].settings, corpus, again);
        device_run_check_same(test_path(host, "checkpoint/step-6"),
                              test_path(again, "checkpoint/step-6"));
    }
}
