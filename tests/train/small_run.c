// SPDX-License-Identifier: Apache-2.0
#include "train/small_run.h"

#include "base/file.h"
#include "ops/cross_entropy.h"
#include "ops/update.h"
#include "train/run.h"

#include <math.h>

void small_run_open(struct small_run *r)
{
    char dump[300], path[300];
    TRAINING_OPEN(&r->t, "debug.seed=1");
    r->dump = test_folder();
    snprintf(dump, sizeof dump, "job.dump_folder=%s", r->dump);
    snprintf(path, sizeof path, "training.dataset_path=%s", r->t.config.training.dataset_path);
    const char *const settings[] = {dump,
                                    path,
                                    "model.dim=16",
                                    "model.n_layers=1",
                                    "model.n_heads=2",
                                    "model.n_kv_heads=1",
                                    "model.ffn_hidden=16",
                                    "training.seq_len=16",
                                    "training.steps=5",
                                    "checkpoint.enable=true",
                                    "data.streams=4",
                                    "data.tokenizer=bytes",
                                    "metrics.log_freq=1",
                                    "lr_scheduler.warmup_steps=1",
                                    "lr_scheduler.total_steps=5",
                                    "training.mixed_precision_param=float32"};
    CHECK_STATUS(OK, config_load(&r->config, NULL, settings, sizeof settings / sizeof *settings));
    arena_release(&r->t.machine.queue->scratch);
}

void small_run_close(struct small_run *r)
{
    config_release(&r->config);
    training_close(&r->t);
}

static struct {
    enum small_run_fault fault;
    int64_t step, updated; /* the last step whose update has run */
    float *weights;
} faulty;

static enum status faulty_cross_entropy(const struct cross_entropy *a,
                                        const struct cross_entropy_io *io, struct queue *queue)
{
    TRY(ops_cpu_reference.cross_entropy(a, io, queue));
    bool is_due = !queue->sizing && faulty.updated + 1 == faulty.step;
    if (!is_due || faulty.fault == FAULT_HUGE) return STATUS_OK;
    enum small_run_fault fault = faulty.fault;
    faulty.fault = FAULT_NONE;
    if (fault == FAULT_NAN) io->loss_N[0] = NAN;
    if (fault == FAULT_FLIP) *(unsigned char *)faulty.weights ^= 1;
    if (fault == FAULT_DEVICE) FAIL(DEVICE, "the device is lost");
    return STATUS_OK;
}

static enum status watched_adamw(const struct adamw *a, const struct adamw_io *io,
                                 struct queue *queue)
{
    TRY(ops_cpu_reference.adamw(a, io, queue));
    if (queue->sizing) return STATUS_OK;
    faulty.updated = a->step, faulty.weights = io->w_n;
    if (faulty.fault != FAULT_HUGE || faulty.step != a->step) return STATUS_OK;
    faulty.fault = FAULT_NONE;
    io->w_n[0] = 1e9f;
    return STATUS_OK;
}

enum status small_run_train(struct small_run *r, enum small_run_fault fault, int64_t step)
{
    struct ops ops = ops_cpu_reference;
    ops.cross_entropy = faulty_cross_entropy, ops.adamw = watched_adamw;
    r->t.machine.ops = &ops;
    faulty.fault = fault, faulty.step = step, faulty.updated = 0;
    enum status st = run_train(&r->config, &r->t.machine);
    r->t.machine.ops = &ops_cpu_reference;
    CHECK(faulty.fault == FAULT_NONE); /* it happened */
    return st;
}

bool small_run_logged(const struct small_run *r, const char *part)
{
    struct text log = {0};
    CHECK_STATUS(OK, file_read(test_path(r->dump, "log.txt"), 1 << 20, &log));
    bool has = log.len && strstr(log.data, part);
    text_release(&log);
    return has;
}
