// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"
#include "train/training.h"

#include "base/file.h"
#include "base/signals.h"
#include "train/validation.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Validates an untrained model and returns the status; metrics go to `folder`. */
static enum status validate(struct training *t, const char *folder)
{
    struct metrics *m;
    struct stop stop;
    struct task_validation tasks = {0};
    struct skipped_records skipped = {.config = &t->config};
    const struct metrics_options o = {
        .config = &t->config.metrics, .dump_folder = folder, .num_ranks = 1};
    double loss = 0;
    struct validation v = {.config = &t->config,
                           .trainer = &t->trainer,
                           .tokenizer = t->tokenizer,
                           .data = &t->data,
                           .skipped = &skipped,
                           .stop = &stop,
                           .tasks = &tasks,
                           .loss = &loss};
    TRY(metrics_open(&m, &o));
    stop_init(&stop, comm_self(), true, 1);
    t->trainer.model.units = stop_wrap_units(&stop, t->trainer.model.units);
    v.metrics = m;
    enum status st = validation_run(&v);
    metrics_close(m);
    return st;
}

#define VALIDATES "validation.enable=true", "data.validation_share=0.1"

TEST(validation_reports_the_loss_of_held_out_data)
{
    struct training t;
    const char *folder = test_folder();
    TRAINING_OPEN(&t, VALIDATES);
    CHECK_STATUS(OK, validate(&t, folder));
    CHECK_NEAR(runs_metric(folder, "validation_loss"), log(t.trainer.model.shape.V), 0.4);
    training_close(&t);
}

static int stop_at_once(struct training *t, const char *folder)
{
    signals_catch();
    kill(getpid(), SIGUSR1);
    for (int n = 0; n < 10000 && !signals_pending(); n++) usleep(1000);
    return validate(t, folder) == STATUS_REQUEUE && isnan(runs_metric(folder, "validation_loss"));
}

TEST(validation_that_is_interrupted_reports_nothing)
{
    struct training t;
    int status;
    const char *folder = test_folder();
    TRAINING_OPEN(&t, VALIDATES);
    pid_t child = fork();
    if (child == 0) _exit(!stop_at_once(&t, folder));
    CHECK(waitpid(child, &status, 0) == child && !status);
    training_close(&t);
}
