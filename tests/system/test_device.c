/* test_device.c -- a run whose weights and activations lie in memory that the host cannot touch,
 * and whose kernels are late, is the run without: bit for bit, on one rank and on many. */
// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "comms/staged/staged.h"
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
#define ASYNC     "checkpoint.async_mode=async"
#define HALF      "training.mixed_precision_param=bfloat16"
#define FLOAT8    DELAYED, "model.converters=[\"float8\"]", "model.ffn_hidden=32"
#define DELAYED   "float8.recipe_name=delayed"
#define SPLIT     "optimizer.master_weights=split", "metrics.console=nxdt"
#define NARROW    "optimizer.state_dtype=bfloat16"
#define ZERO1     "parallelism.fsdp_shard_gradients=false"

struct device_run {
    const char *all[MOST_SETTINGS];
    int count;
    bool strict;
};

static enum status wrap(struct comm *c, const char *name, void *on)
{
    (void)name;
    return staged_wrap(c, on);
}

static enum status run_rank(const struct comm *world, void *context)
{
    const struct device_run *r = context;
    struct config c = {0};
    struct machine m = {.ops = r->strict ? &strict_ops : &ops_cpu_reference};
    enum status st = STATUS_OK;
    TRY(config_load(&c, NULL, r->all, r->count));
    TRY_OUT(config_check(&c, world->size));
    TRY_OUT(mesh_resolve(&m.mesh, &c.parallelism, world->rank, world->size));
    TRY_OUT(groups_open(&m.groups, &m.mesh, world));
    TRY_OUT(cpu_queue_open(&m.on, 1, 0));
    if (r->strict) {
        strict_open(m.on, &ops_cpu_reference, true);
        TRY_OUT(groups_carry(&m.groups, wrap, m.on));
    }
    TRY_OUT(run_train(&c, &m));
out:
    groups_close(&m.groups);
    if (r->strict) strict_close(m.on);
    cpu_queue_close(m.on);
    config_release(&c);
    return st;
}

/* Six steps with a validation, and checkpoints of step 3 and step 6; where there is the first of
 * them already, on from it. */
static void train(int ranks, const char *const *settings, const char *corpus, const char *dump,
                  bool strict)
{
    struct device_run r = {.all = {TRAINING_OF_RANKS, "data.prefetch=2", "training.steps=6",
                                   "checkpoint.enable=true", "checkpoint.interval=3",
                                   "validation.enable=true", "validation.freq=3",
                                   "validation.steps=2", "data.validation_share=0.1"},
                           .strict = strict};
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

static void check_same(const char *a, const char *b)
{
    struct comparison c;
    CHECK_STATUS(OK, comparison_make(&c, a, b));
    for (size_t i = 0; i < c.count; i++) CHECK(c.all[i].kind == DIFFERENCE_VALUE);
    comparison_release(&c);
}

TEST(a_run_on_a_device_has_the_bits_of_one_without)
{
    static const struct {
        int ranks;
        const char *settings[8];
    } runs[] = {
        {1, {SHARD(1), ASYNC}},
        {1, {SHARD(1), HALF, FLOAT8}},
        {2, {SHARD(2), HALF, "model.converters=[\"float8\"]", "model.ffn_hidden=32"}},
        {2, {SHARD(2), ASYNC, HALF}},
        {4, {SHARD(4), ZERO1}},
        {4, {COPIES(2), TP(2)}},
        {2, {CP(2), HALF}},
        {4, {PP(2), SHARD(2)}},
        {1, {SHARD(1), HALF, SPLIT, NARROW}},
        {4, {SHARD(2), TP(2), HALF, SPLIT, NARROW, ASYNC}},
    };
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const char *host = test_folder(), *device = test_folder(), *again = test_folder();
        train(runs[i].ranks, runs[i].settings, corpus, host, false);
        train(runs[i].ranks, runs[i].settings, corpus, device, true);
        check_same(test_path(host, "checkpoint/step-6"), test_path(device, "checkpoint/step-6"));
        CHECK_STATUS(OK, file_make_dirs(test_path(again, "checkpoint")));
        const char *argv[] = {"cp", "-r", test_path(device, "checkpoint/step-3"),
                              test_path(again, "checkpoint"), NULL};
        CHECK(test_run(argv, NULL, NULL) == 0);
        train(runs[i].ranks, runs[i].settings, corpus, again, true);
        check_same(test_path(host, "checkpoint/step-6"), test_path(again, "checkpoint/step-6"));
    }
}
