/* test_nccl.c -- a run over comm/nccl, with a stub of NCCL that moves data as late as it may
 * (comm/nccl/stub.h), has the bits of a run on the host, since the stub sums in the order of
 * comm.h.  That it ends shows that nothing deadlocks. */
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/stub.h"
#include "system/device_runs.h"
#include "system/layouts.h"
#include "system/runs.h"

#define SHORT    "training.steps=3", "data.prefetch=0", "validation.steps=1"
#define FLOAT8   "model.converters=[\"float8\"]", "model.ffn_hidden=32"
#define SCHEDULE "parallelism.pipeline_parallel_schedule="

TEST(a_run_over_nccl_has_the_bits_of_a_run_on_the_host)
{
    static const struct {
        int ranks, messages; /* at least: that many were not staged through the host */
        const char *settings[10];
    } runs[] = {
        {2, 0, {SHORT, SHARD(2), HALF}},
        {4, 0, {SHORT, COPIES(2), TP(2)}},
        {4, 0, {SHORT, SHARD(2), TP(2), HALF, FLOAT8}},
        {3, 500, {SHORT, CP(3), "training.seq_len=24"}},
        {4, 500, {SHORT, PP(2), CP(2)}},
        {3, 100, {SHORT, PP(3), SCHEDULE "GPipe"}},
        {2, 100, {SHORT, PP(2), SCHEDULE "Interleaved1F1B", "model.n_layers=4"}},
    };
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const char *host = test_folder(), *device = test_folder();
        device_run_train(ON_HOST, runs[i].ranks, runs[i].settings, corpus, host);
        int messages = stub_counts().messages;
        device_run_train(OVER_NCCL, runs[i].ranks, runs[i].settings, corpus, device);
        CHECK(stub_counts().messages - messages >= runs[i].messages);
        device_run_check_same(test_path(host, "checkpoint/step-3"),
                              test_path(device, "checkpoint/step-3"));
        CHECK(!stub_counts().comms && !stub_counts().streams && !stub_counts().events);
    }
}

/* Two ranks, each with a stream of the group, and one for messages sent and received in each
 * direction: streams of eight stages each would share hardware queues. */
TEST(stages_of_a_rank_share_streams)
{
    const char *settings[] = {SHORT,
                              PP(2),
                              SCHEDULE "Interleaved1F1B",
                              "model.n_layers=16",
                              "parallelism.pipeline_parallel_layers_per_stage=1",
                              NULL};
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    int opened = stub_counts().opened;
    device_run_train(OVER_NCCL, 2, settings, corpus, test_folder());
    CHECK(stub_counts().opened - opened == 2 * (1 + 4));
}

/* NCCL takes sums in an order of its own; staged transfers do not. */
TEST(elastic_sums_are_refused_over_nccl)
{
    const char *settings[] = {SHORT, SHARD(2), "training.determinism=elastic", NULL};
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    CHECK_STATUS(CONFIG, device_run_try(OVER_NCCL, 2, settings, corpus, test_folder()));
    CHECK_MESSAGE("set device.comm = \"staged\"");
    const char *host = test_folder(), *staged = test_folder();
    device_run_train(ON_HOST, 2, settings, corpus, host);
    device_run_train(OVER_STAGED, 2, settings, corpus, staged);
    device_run_check_same(test_path(host, "checkpoint/step-3"),
                          test_path(staged, "checkpoint/step-3"));
}
