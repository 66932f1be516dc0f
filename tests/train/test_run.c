// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "base/file.h"
#include "ops/cross_entropy.h"
#include "ops/update.h"
#include "system/runs.h"
#include "train/run.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

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

enum fault { FAULT_NONE, FAULT_NAN, FAULT_FLIP, FAULT_DEVICE, FAULT_HUGE };

/* What goes wrong in the forward pass of a step: its loss is NaN, a bit of a weight changes, or the
 * device fails; or in its update: a weight becomes too large. */
static struct {
    enum fault fault;
    int64_t step, updated; /* the last step whose update has run */
    float *weights;
} faulty;

static enum status faulty_cross_entropy(const struct cross_entropy *a,
                                        const struct cross_entropy_io *io, struct queue *queue)
{
    TRY(ops_cpu_reference.cross_entropy(a, io, queue));
    bool is_due = !queue->sizing && faulty.updated + 1 == faulty.step;
    if (!is_due || faulty.fault == FAULT_HUGE) return STATUS_OK;
    enum fault fault = faulty.fault;
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

/* Runs with a fault in this step; returns the run's status. */
static enum status run_faulty(struct small_run *r, enum fault fault, int64_t step)
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

TEST(diverged_run_saves_the_state_before)
{
    struct small_run whole, diverged;
    small_run_open(&whole);
    CHECK_STATUS(OK, run_train(&whole.config, &whole.t.machine));
    whole.config.training.steps = 3;
    const char *three = test_folder();
    whole.config.job.dump_folder = three;
    CHECK_STATUS(OK, run_train(&whole.config, &whole.t.machine));

    small_run_open(&diverged);
    CHECK_STATUS(DIVERGED, run_faulty(&diverged, FAULT_NAN, 4));
    CHECK_MESSAGE("step 4 ");
    CHECK(runs_metric(diverged.dump, "step") == 3);
    runs_check_same_files(test_path(three, "checkpoint/step-3"),
                          test_path(diverged.dump, "checkpoint/step-3"), ".safetensors");
    CHECK(!file_exists(test_path(diverged.dump, "checkpoint/step-4")));
    /* It resumes as if nothing had been wrong. */
    CHECK_STATUS(OK, run_train(&diverged.config, &diverged.t.machine));
    runs_check_same_files(test_path(whole.dump, "checkpoint/step-5"),
                          test_path(diverged.dump, "checkpoint/step-5"), ".safetensors");
    small_run_close(&diverged), small_run_close(&whole);
}

TEST(run_that_only_loads_sets_no_checkpoint_aside)
{
    struct small_run r;
    small_run_open(&r);
    r.config.checkpoint.interval = r.config.guard.hash_every = 1;
    CHECK_STATUS(OK, run_train(&r.config, &r.t.machine));
    r.config.checkpoint.load_only = true, r.config.checkpoint.load_step = 2;
    CHECK_STATUS(DEVICE, run_faulty(&r, FAULT_FLIP, 4));
    CHECK_MESSAGE("step 2 or earlier");
    CHECK(file_exists(test_path(r.dump, "checkpoint/step-3")));
    CHECK(file_exists(test_path(r.dump, "checkpoint/step-5")));
    small_run_close(&r);
}

TEST(run_whose_checkpoints_are_all_set_aside_never_starts_over)
{
    struct small_run r;
    struct text before = {0}, after = {0};
    small_run_open(&r);
    r.config.checkpoint.interval = r.config.guard.hash_every = 4;
    CHECK_STATUS(DEVICE, run_faulty(&r, FAULT_FLIP, 5));
    CHECK_MESSAGE("step 3 or earlier");
    CHECK(!file_exists(test_path(r.dump, "checkpoint/step-4")));
    CHECK(file_exists(test_path(r.dump, "checkpoint/abandoned-3-1/step-4")));
    const char *metrics = test_path(r.dump, "metrics.jsonl");
    CHECK_STATUS(OK, file_read(metrics, 1 << 20, &before));
    CHECK_STATUS(DATA, run_train(&r.config, &r.t.machine));
    CHECK_MESSAGE("/checkpoint: all checkpoints were set aside in abandoned-*; move one back");
    CHECK_STATUS(OK, file_read(metrics, 1 << 20, &after));
    CHECK(before.len > 0 && !strcmp(before.data, after.data));
    CHECK_STATUS(OK, file_rename(test_path(r.dump, "checkpoint/abandoned-3-1/step-4"),
                                 test_path(r.dump, "checkpoint/step-4")));
    CHECK_STATUS(OK, run_train(&r.config, &r.t.machine));
    CHECK(runs_metric(r.dump, "step") == STEPS);
    text_release(&before), text_release(&after);
    small_run_close(&r);
}

static bool log_has(const struct small_run *r, const char *part)
{
    struct text log = {0};
    CHECK_STATUS(OK, file_read(test_path(r->dump, "log.txt"), 1 << 20, &log));
    bool has = log.len && strstr(log.data, part);
    text_release(&log);
    return has;
}

TEST(run_whose_device_fails_saves_nothing)
{
    struct small_run r;
    small_run_open(&r);
    CHECK_STATUS(DEVICE, run_faulty(&r, FAULT_DEVICE, 4));
    CHECK_MESSAGE("the device is lost");
    CHECK(!file_exists(test_path(r.dump, "checkpoint/step-3")));
    CHECK(!log_has(&r, "that state is saved"));
    small_run_close(&r);
}

TEST(run_that_fails_in_its_first_step_does_not_report_a_checkpoint)
{
    struct small_run r;
    small_run_open(&r);
    CHECK_STATUS(DIVERGED, run_faulty(&r, FAULT_NAN, 1));
    CHECK(!log_has(&r, "that state is saved"));
    small_run_close(&r);
}

/* The save of step 2, in the background, exceeds the limit of a file's size. */
TEST(failing_run_reports_a_lost_save)
{
    static const enum fault faults[] = {FAULT_NAN, FAULT_DEVICE};
    for (int i = 0; i < 2; i++) {
        struct small_run r;
        struct rlimit old;
        small_run_open(&r);
        r.config.checkpoint.async_mode = ASYNC_async, r.config.checkpoint.interval = 2;
        void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
        CHECK(!getrlimit(RLIMIT_FSIZE, &old));
        CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){16 << 10, old.rlim_max}));
        enum status st = run_faulty(&r, faults[i], 3);
        CHECK(!setrlimit(RLIMIT_FSIZE, &old));
        signal(SIGXFSZ, handler);
        CHECK(st == (i ? STATUS_DEVICE : STATUS_DIVERGED));
        CHECK(log_has(&r, "the checkpoint of step 2 was not written: "));
        CHECK(log_has(&r, "cannot save the checkpoint of step 2: ") == !i); /* it tried again */
        CHECK(log_has(&r, "File too large") && !log_has(&r, "that state is saved"));
        small_run_close(&r);
    }
}

TEST(run_with_a_bad_state_and_no_good_checkpoint_ends)
{
    struct small_run r;
    small_run_open(&r);
    r.config.checkpoint.interval = 2, r.config.guard.nonfinite = NONFINITE_rollback;
    CHECK_STATUS(DIVERGED, run_faulty(&r, FAULT_HUGE, 2));
    CHECK_MESSAGE("step 2: loss ");
    CHECK_MESSAGE("there is no checkpoint to go back to");
    CHECK(runs_metric(r.dump, "step") == 2);
    CHECK(log_has(
        &r, "cannot save the checkpoint of step 2: rank 0: tensor model.embed_tokens.weight"));
    CHECK(!log_has(&r, "the run continues") && !log_has(&r, "that state is saved"));
    small_run_close(&r);
}
