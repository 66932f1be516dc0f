// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "base/file.h"
#include "ops/cross_entropy.h"
#include "system/runs.h"
#include "train/run.h"

#include <math.h>

enum { STEPS = 5 };

/* A tiny run of STEPS steps on the machine of `t`, which the caller opens. */
struct small_run {
    struct training t;
    struct config config;
    const char *dump;
};

static void small_run_open(struct small_run *r)
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

static void small_run_close(struct small_run *r)
{
    config_release(&r->config);
    training_close(&r->t);
}

TEST(finished_run_resumes_and_does_nothing)
{
    struct small_run r;
    small_run_open(&r);
    CHECK_STATUS(OK, run_train(&r.config, &r.t.machine));
    CHECK_STATUS(OK, run_train(&r.config, &r.t.machine));
    CHECK(runs_metric(r.dump, "step") == STEPS);
    small_run_close(&r);
}

static struct {
    int calls, at; /* the call whose loss is NaN; 0: none */
} faulty;

static enum status faulty_cross_entropy(const struct cross_entropy *a,
                                        const struct cross_entropy_io *io, struct queue *queue)
{
    TRY(ops_cpu_reference.cross_entropy(a, io, queue));
    if (++faulty.calls == faulty.at) io->loss_N[0] = NAN;
    return STATUS_OK;
}

/* Runs with one NaN among the losses; returns the run's status. */
static enum status run_faulty(struct small_run *r, int at)
{
    struct ops ops = ops_cpu_reference;
    ops.cross_entropy = faulty_cross_entropy;
    r->t.machine.ops = &ops;
    faulty.calls = 0, faulty.at = at;
    enum status st = run_train(&r->config, &r->t.machine);
    r->t.machine.ops = &ops_cpu_reference;
    return st;
}

TEST(diverged_run_saves_the_state_before)
{
    struct small_run whole, diverged;
    small_run_open(&whole);
    CHECK_STATUS(OK, run_faulty(&whole, 0));
    int calls = faulty.calls;
    whole.config.training.steps = 3;
    const char *three = test_folder();
    whole.config.job.dump_folder = three;
    CHECK_STATUS(OK, run_faulty(&whole, 0));
    int first_of_step_4 = faulty.calls + 1;
    CHECK(calls >= first_of_step_4);

    small_run_open(&diverged);
    CHECK_STATUS(DIVERGED, run_faulty(&diverged, first_of_step_4));
    CHECK_MESSAGE("step 4 ");
    CHECK(runs_metric(diverged.dump, "step") == 3);
    runs_check_same_files(test_path(three, "checkpoint/step-3"),
                          test_path(diverged.dump, "checkpoint/step-3"), ".safetensors");
    CHECK(!file_exists(test_path(diverged.dump, "checkpoint/step-4")));
    /* It resumes as if nothing had been wrong. */
    CHECK_STATUS(OK, run_faulty(&diverged, 0));
    runs_check_same_files(test_path(whole.dump, "checkpoint/step-5"),
                          test_path(diverged.dump, "checkpoint/step-5"), ".safetensors");
    small_run_close(&diverged), small_run_close(&whole);
}
