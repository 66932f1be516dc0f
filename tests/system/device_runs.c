// SPDX-License-Identifier: Apache-2.0
#include "system/device_runs.h"

#include "comm/nccl/nccl.h"
#include "comm/ranks.h"
#include "comm/staged/staged.h"
#include "tensor/strict_device.h"
#include "train/training.h"

#include "base/log.h"
#include "checkpoint/comparison.h"
#include "train/run.h"

enum { MAX_SETTINGS = 40, TIMEOUT_S = 1000 };

struct device_run_settings {
    const char *all[MAX_SETTINGS];
    int count;
    enum device_run how;
};

enum status device_run_over_staged(struct comm *c, const char *name, enum comm_use use, void *queue)
{
    (void)name, (void)use;
    return staged_wrap(c, queue);
}

enum status device_run_over_nccl(struct comm *c, const char *name, enum comm_use use, void *nccl)
{
    return nccl_wrap(c, nccl, name, use);
}

static enum status run_rank(const struct comm *world, void *context)
{
    const struct device_run_settings *r = context;
    bool strict = r->how != ON_HOST, opened = false;
    struct config c = {0};
    struct machine m = {.ops = strict ? &strict_ops : &ops_cpu_reference};
    struct nccl *nccl = NULL;
    enum status st = STATUS_OK;
    TRY(config_load(&c, NULL, r->all, r->count));
    TRY_OUT(config_check(&c, world->size));
    TRY_OUT(mesh_resolve(&m.mesh, &c.parallelism, world->rank, world->size));
    TRY_OUT(groups_open(&m.groups, &m.mesh, world));
    TRY_OUT(cpu_queue_open(&m.queue, 1, 0));
    if (strict) strict_open(m.queue, &ops_cpu_reference, true), opened = true;
    if (r->how == OVER_STAGED)
        TRY_OUT(groups_wrap_device(&m.groups, device_run_over_staged, m.queue));
    if (r->how == OVER_NCCL) {
        TRY_OUT(nccl_open(&nccl, m.queue, TIMEOUT_S));
        TRY_OUT(groups_wrap_device(&m.groups, device_run_over_nccl, nccl));
    }
    TRY_OUT(run_train(&c, &m));
out:
    groups_close(&m.groups);
    nccl_close(nccl);
    if (opened) strict_close(m.queue);
    cpu_queue_close(m.queue);
    config_release(&c);
    return st;
}

enum status device_run_try(enum device_run how, int ranks, const char *const *settings,
                           const char *corpus, const char *dump)
{
    struct device_run_settings r = {
        .all = {TRAINING_OF_RANKS, "data.prefetch=2", "training.steps=6", "checkpoint.enable=true",
                "checkpoint.interval=3", "validation.enable=true", "validation.freq=3",
                "validation.steps=2", "data.validation_share=0.1"},
        .how = how};
    char data[512], folder[512];
    while (r.all[r.count]) r.count++;
    snprintf(data, sizeof data, "training.dataset_path=%s", corpus);
    snprintf(folder, sizeof folder, "job.dump_folder=%s", dump);
    r.all[r.count++] = data, r.all[r.count++] = folder;
    for (int i = 0; settings[i]; i++) {
        CHECK(r.count < MAX_SETTINGS);
        r.all[r.count++] = settings[i];
    }
    enum status st = ranks_run(ranks, run_rank, &r);
    log_open(NULL), log_set_rank(-1), log_set_quiet(false);
    return st;
}

void device_run_train(enum device_run how, int ranks, const char *const *settings,
                      const char *corpus, const char *dump)
{
    CHECK_STATUS(OK, device_run_try(how, ranks, settings, corpus, dump));
}

void device_run_check_same(const char *a, const char *b)
{
    struct comparison c;
    CHECK_STATUS(OK, comparison_make(&c, a, b));
    for (size_t i = 0; i < c.count; i++) CHECK(c.all[i].kind == DIFFERENCE_VALUE);
    comparison_release(&c);
}
