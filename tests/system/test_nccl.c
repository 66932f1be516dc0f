/* test_nccl.c -- a run whose tensors travel over comms/nccl, on a library that carries them as late
 * as it may, is the run without: bit for bit, as far as the library sums in our order, which the
 * one of these tests does (comms/nccl/stub.h).  That it ends shows that nothing locks. */
// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "comms/nccl/nccl.h"
#include "comms/nccl/stub.h"
#include "tensor/strict_device.h"
#include "train/training.h"

#include "base/log.h"
#include "checkpoint/compare.h"
#include "system/runs.h"
#include "train/run.h"

enum { MOST_SETTINGS = 32 };

#define SHARD(n)  "parallelism.data_parallel_shard_degree=" #n
#define COPIES(n) "parallelism.data_parallel_replicate_degree=" #n
#define TP(n)     "parallelism.tensor_parallel_degree=" #n
#define PP(n)     "parallelism.pipeline_parallel_degree=" #n
#define CP(n)     "parallelism.context_parallel_degree=" #n
#define HALF      "training.mixed_precision_param=bfloat16"
#define SCHEDULE  "parallelism.pipeline_parallel_schedule="

struct nccl_run {
    const char *all[MOST_SETTINGS];
    int count;
    bool nccl;
};

static enum status wrap(struct comm *c, const char *name, void *nccl)
{
    return nccl_wrap(c, nccl, name);
}

static enum status run_rank(const struct comm *world, void *context)
{
    const struct nccl_run *r = context;
    struct config c = {0};
    struct machine m = {.ops = r->nccl ? &strict_ops : &ops_cpu_reference};
    struct nccl *nccl = NULL;
    enum status st = STATUS_OK;
    TRY(config_load(&c, NULL, r->all, r->count));
    TRY_OUT(config_check(&c, world->size));
    TRY_OUT(mesh_resolve(&m.mesh, &c.parallelism, world->rank, world->size));
    TRY_OUT(groups_open(&m.groups, &m.mesh, world));
    TRY_OUT(cpu_queue_open(&m.on, 1, 0));
    if (r->nccl) {
        strict_open(m.on, &ops_cpu_reference, true);
        TRY_OUT(nccl_open(&nccl, m.on, 1000));
        TRY_OUT(groups_carry(&m.groups, wrap, nccl));
    }
    TRY_OUT(run_train(&c, &m));
out:
    groups_close(&m.groups);
    nccl_close(nccl);
    if (r->nccl && m.on) strict_close(m.on);
    cpu_queue_close(m.on);
    config_release(&c);
    return st;
}

static void train(int ranks, const char *const *settings, const char *corpus, const char *dump,
                  bool nccl)
{
    struct nccl_run r = {.all = {TRAINING_OF_RANKS, "data.prefetch=0", "training.steps=3",
                                 "checkpoint.enable=true", "checkpoint.interval=3",
                                 "validation.enable=true", "validation.freq=3",
                                 "validation.steps=1", "data.validation_share=0.1"},
                         .nccl = nccl};
    char data[512], folder[512];
    while (r.all[r.count]) r.count++;
    snprintf(data, sizeof data, "training.dataset_path=%s", corpus);
    snprintf(folder, sizeof folder, "job.dump_folder=%s", dump);
    r.all[r.count++] = data, r.all[r.count++] = folder;
    for (int i = 0; settings[i]; i++) r.all[r.count++] = settings[i];
    enum status st = ranks_run(ranks, run_rank, &r);
    log_open(NULL), log_rank(-1), log_quiet(false);
    CHECK_STATUS(OK, st);
}

TEST(a_run_over_nccl_has_the_bits_of_one_over_the_host)
{
    static const struct {
        int ranks, messages; /* those at least, so that they have not gone by way of the host */
        const char *settings[6];
    } runs[] = {
        {2, 0, {SHARD(2), HALF}},
        {4, 0, {COPIES(2), TP(2)}},
        {3, 500, {CP(3), "training.seq_len=24"}},
        {4, 500, {PP(2), CP(2)}},
        {3, 100, {PP(3), SCHEDULE "GPipe"}},
        {2, 100, {PP(2), SCHEDULE "Interleaved1F1B", "model.n_layers=4"}},
    };
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const char *host = test_folder(), *device = test_folder();
        struct comparison c;
        train(runs[i].ranks, runs[i].settings, corpus, host, false);
        int messages = stub_counts().messages;
        train(runs[i].ranks, runs[i].settings, corpus, device, true);
        CHECK(stub_counts().messages - messages >= runs[i].messages);
        CHECK_STATUS(OK, comparison_make(&c, test_path(host, "checkpoint/step-3"),
                                         test_path(device, "checkpoint/step-3")));
        for (size_t k = 0; k < c.count; k++) CHECK(c.all[k].kind == DIFFERENCE_VALUE);
        comparison_release(&c);
        CHECK(!stub_counts().comms && !stub_counts().lanes && !stub_counts().marks);
    }
}
