// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "comm/ranks.h"
#include "system/layouts.h"
#include "system/runs.h"
#include "train/run_checkpoint.h"

/* A run around the trainer, with its checkpoints in a folder of its own. */
static struct training_run run_around(struct training *t)
{
    static char dump[300];
    snprintf(dump, sizeof dump, "%s", test_folder());
    t->config.job.dump_folder = dump;
    t->config.checkpoint.enable = true;
    struct training_run r = {.whole = &t->config,
                             .config = &t->config,
                             .saved_step = -1,
                             .unsavable_step = -1,
                             .is_main = true,
                             .reads = true};
    r.trainer = t->trainer, r.loader = t->loader, r.tokenizer = t->tokenizer;
    stop_init(&r.stop, comm_self(), false, 0);
    r.checkpoint_folder = file_join(dump, "checkpoint");
    stop_init(&r.stop, comm_self(), true, 0);
    struct checkpointer_options o = {
        .folder = r.checkpoint_folder, .load_step = -1, .keep_latest_k = 10, .world = comm_self()};
    CHECK_STATUS(OK, checkpointer_open(&r.checkpointer, &o));
    return r;
}

TEST(a_saved_state_is_filled_in_again_and_saved_only_once)
{
    struct training t;
    struct step_result s;
    TRAINING_OPEN(&t, "debug.seed=1");
    for (int i = 0; i < 2; i++) CHECK_STATUS(OK, trainer_step(&t.trainer, t.loader, &s));
    struct training_run r = run_around(&t);
    config_write(r.whole, false, &r.config_toml);
    t.config.guard.on_spike = ON_SPIKE_rollback, r.guard.good_step = 1;
    CHECK_STATUS(OK, run_checkpoint_save(&r, false));
    CHECK(r.saved_step == 2);
    char *manifest = file_join(r.checkpoint_folder, "step-2/manifest.json");
    CHECK(file_exists(manifest));
    CHECK_STATUS(OK, file_remove_tree(manifest));
    CHECK_STATUS(OK, run_checkpoint_save(&r, false)); /* it was saved */
    CHECK(!file_exists(manifest));
    CHECK_STATUS(OK, (r.saved_step = -1, run_checkpoint_save_now(&r)));
    CHECK(file_exists(manifest));
    float weight = r.trainer.optim.weights[5];
    CHECK_STATUS(OK, checkpointer_close(r.checkpointer, false));
    loader_close(t.loader); /* a loader resumes only before its first row */
    t.loader = NULL;
    r.loader = NULL, r.reads = false;
    r.trainer.steps_done = 0, r.trainer.optim.weights[5] = 0;
    CHECK_STATUS(OK, run_checkpoint_fill(&r));
    CHECK(r.trainer.steps_done == 2 && r.saved_step == 2 && r.trainer.optim.weights[5] == weight);
    CHECK(r.trainer.moments_begin == 0 && r.guard.good_step == 1 && !r.counts_again);
    const char *optimizer[] = {"optimizer"}, *schedule[] = {"lr_scheduler"};
    struct option_list *excluded = &t.config.checkpoint.exclude_from_loading, none = *excluded;
    *excluded = (struct option_list){optimizer, 1};
    CHECK_STATUS(OK, run_checkpoint_fill(&r));
    CHECK(r.trainer.steps_done == 2 && r.trainer.moments_begin == 2);
    *excluded = (struct option_list){schedule, 1};
    r.trainer.steps_done = 0;
    CHECK_STATUS(OK, run_checkpoint_fill(&r));
    CHECK(r.trainer.steps_done == 0 && r.trainer.moments_begin == -2 && r.guard.good_step == 0);
    CHECK(r.counts_again);
    *excluded = none;
    t.trainer = r.trainer;
    free(manifest), free(r.checkpoint_folder);
    text_release(&r.config_toml);
    training_close(&t);
}

TEST(state_in_a_spike_keeps_the_checkpoint_that_a_rollback_goes_back_to)
{
    struct training t;
    TRAINING_OPEN(&t, "debug.seed=1");
    t.config.guard.nonfinite = NONFINITE_rollback;
    struct training_run r = run_around(&t);
    CHECK(run_checkpoint_state(&r).keep_before == 0);
    r.guard.spike_steps = 2, r.guard.spike_begin = 9;
    CHECK(run_checkpoint_state(&r).keep_before == 8);
    CHECK_STATUS(OK, checkpointer_close(r.checkpointer, false));
    free(r.checkpoint_folder);
    training_close(&t);
}

struct bad_save {
    const char *corpus, *folder;
};

/* A weight of rank 1 is NaN, which only that rank knows. */
static enum status save_bad_value(const struct comm *world, void *context)
{
    const struct bad_save *b = context;
    const char *settings[] = {TRAINING_OF_RANKS, b->corpus, SHARD(2), "checkpoint.enable=true",
                              "guard.nonfinite=skip"};
    struct training t;
    struct step_result s;
    TRY(training_open_rank(&t, world, settings, sizeof settings / sizeof *settings));
    TRY(trainer_step(&t.trainer, t.loader, &s));
    struct training_run r = {.whole = &t.config,
                             .config = &t.config,
                             .trainer = t.trainer,
                             .loader = t.loader,
                             .tokenizer = t.tokenizer,
                             .saved_step = -1,
                             .unsavable_step = -1,
                             .is_main = world->rank == 0,
                             .reads = true};
    const struct checkpointer_options o = {
        .folder = b->folder, .load_step = -1, .world = &r.trainer.machine.groups.of[GROUP_world]};
    stop_init(&r.stop, world, false, 0);
    TRY(checkpointer_open(&r.checkpointer, &o));
    if (world->rank == 1) r.trainer.optim.weights[r.trainer.shard.runs[0].at] = NAN;
    TRY(run_checkpoint_save_if_possible(&r));
    RANK_CHECK(r.unsavable_step == 1 && r.saved_step == -1);
    RANK_CHECK(r.saved_at_s > 0); /* with interval_type = "seconds" the next step does not retry */
    TRY(checkpointer_close(r.checkpointer, false));
    t.trainer = r.trainer;
    training_close(&t);
    return STATUS_OK;
}

TEST(rank_0_and_the_rank_at_fault_log_a_failed_save)
{
    char corpus[300];
    const char *folder = test_folder(), *path = test_path(folder, "log.txt");
    struct text log = {0};
    snprintf(corpus, sizeof corpus, "training.dataset_path=%s/corpus.txt", folder);
    runs_write_corpus(strchr(corpus, '=') + 1, 60000);
    struct bad_save b = {corpus, test_path(folder, "checkpoint")};
    CHECK_STATUS(OK, log_open(path));
    CHECK_STATUS(OK, ranks_run(2, save_bad_value, &b));
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &log));
    CHECK(
        strstr(log.data, "cannot save the checkpoint of step 1: rank 1 failed: loss or gradient"));
    CHECK(strstr(log.data, "cannot save the checkpoint of step 1: rank 1: tensor model."));
    text_release(&log);
}
