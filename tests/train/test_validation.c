// SPDX-License-Identifier: Apache-2.0
#include "system/layouts.h"
#include "system/runs.h"
#include "train/training.h"

#include "base/file.h"
#include "base/signals.h"
#include "comm/ranks.h"
#include "train/validation.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Validates an untrained model and returns the status; metrics go to `folder`, if any. */
static enum status validate(struct training *t, const char *folder, double *loss)
{
    struct metrics *m = NULL;
    struct stop stop;
    struct task_validation tasks = {0};
    struct skipped_records skipped = {.config = &t->config};
    const struct metrics_options o = {
        .config = &t->config.metrics, .dump_folder = folder, .num_ranks = 1};
    struct validation v = {.config = &t->config,
                           .trainer = &t->trainer,
                           .tokenizer = t->tokenizer,
                           .data = &t->data,
                           .skipped = &skipped,
                           .stop = &stop,
                           .tasks = &tasks,
                           .loss = loss};
    if (folder) TRY(metrics_open(&m, &o));
    stop_init(&stop, comm_self(), true, 1);
    t->trainer.model.units = stop_wrap_units(&stop, t->trainer.model.units);
    v.metrics = m;
    enum status st = validation_run(&v);
    if (m) metrics_close(m);
    return st;
}

#define VALIDATES "validation.enable=true", "data.validation_share=0.1"

TEST(validation_reports_the_loss_of_held_out_data)
{
    struct training t;
    double loss;
    const char *folder = test_folder();
    TRAINING_OPEN(&t, VALIDATES);
    CHECK_STATUS(OK, validate(&t, folder, &loss));
    CHECK_NEAR(runs_metric(folder, "validation_loss"), log(t.trainer.model.shape.V), 0.4);
    training_close(&t);
}

/* Units that take 0.15 s to open. */
struct slow_units {
    struct unit_provider units, *provider;
};

static enum status open_slowly(struct unit_provider *p, int unit, unsigned use,
                               struct unit_buffers *buffers)
{
    struct slow_units *s = (struct slow_units *)p;
    CHECK(usleep(150000) == 0);
    return s->provider->open(s->provider, unit, use, buffers);
}

static enum status close_slowly(struct unit_provider *p, int unit, unsigned use)
{
    struct slow_units *s = (struct slow_units *)p;
    return s->provider->close(s->provider, unit, use);
}

TEST(validation_shows_its_progress_on_a_terminal)
{
    struct training t;
    double loss;
    int main_fd, fd, old = dup(STDERR_FILENO);
    struct winsize size = {.ws_row = 5, .ws_col = 100};
    char got[4096] = "";
    test_require_pty();
    TRAINING_OPEN(&t, VALIDATES, "validation.steps=2");
    struct slow_units slow = {{open_slowly, close_slowly}, t.trainer.model.units};
    t.trainer.model.units = &slow.units;
    CHECK(!setenv("TERM", "xterm", 1));
    CHECK(old >= 0 && openpty(&main_fd, &fd, NULL, NULL, &size) == 0);
    CHECK(fcntl(main_fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(dup2(fd, STDERR_FILENO) >= 0);
    enum status st = validate(&t, NULL, &loss);
    CHECK(dup2(old, STDERR_FILENO) >= 0);
    CHECK_STATUS(OK, st);
    CHECK(read(main_fd, got, sizeof got - 1) > 0 && strstr(got, "validation: "));
    CHECK(strstr(got, " tokens, "));
    CHECK(close(fd) == 0 && close(main_fd) == 0 && close(old) == 0);
    training_close(&t);
}

static int stop_at_once(struct training *t, const char *folder)
{
    signals_catch();
    kill(getpid(), SIGUSR1);
    for (int n = 0; n < 10000 && !signals_pending(); n++) usleep(1000);
    double loss;
    return validate(t, folder, &loss) == STATUS_REQUEUE &&
           isnan(runs_metric(folder, "validation_loss"));
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

/* Validation over some ranks. */
struct layout_of_ranks {
    const char *steps, *pipelined;
    double loss;
};

static enum status validate_rank(const struct comm *world, void *context)
{
    struct layout_of_ranks *l = context;
    const char *settings[] = {TRAINING_OF_RANKS,
                              "data.order=megatron",
                              "training.dataset_path=mock",
                              "training.local_batch_size=3",
                              "validation.enable=true",
                              "validation.local_batch_size=4",
                              l->steps,
                              l->pipelined};
    struct training t;
    double loss;
    TRY(training_open_rank(&t, world, settings, sizeof settings / sizeof *settings));
    enum status st = validate(&t, NULL, &loss);
    if (!world->rank) l->loss = loss;
    training_close(&t);
    return st;
}

/* Microbatches of training have three rows, those of validation four. */
TEST(validation_in_megatrons_order_reads_the_same_rows_on_any_number_of_ranks)
{
    struct layout_of_ranks one = {.steps = "validation.steps=4", .pipelined = PP(1)};
    struct layout_of_ranks two = {.steps = "validation.steps=2", .pipelined = PP(1)};
    struct layout_of_ranks four = {.steps = "validation.steps=2", .pipelined = PP(2)};
    CHECK_STATUS(OK, ranks_run(1, validate_rank, &one));
    CHECK_STATUS(OK, ranks_run(2, validate_rank, &two));
    CHECK_STATUS(OK, ranks_run(4, validate_rank, &four));
    CHECK_NEAR(one.loss, two.loss, 1e-6);
    CHECK_NEAR(one.loss, four.loss, 1e-6);
}
