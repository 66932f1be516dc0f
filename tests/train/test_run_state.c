// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "train/run_state.h"

/* A run around the trainer, with its checkpoints in a folder of its own. */
static struct training_run run_around(struct training *t)
{
    static char dump[300];
    snprintf(dump, sizeof dump, "%s", test_folder());
    t->config.job.dump_folder = dump;
    t->config.checkpoint.enable = true;
    struct training_run r = {
        .config = &t->config, .saved_step = -1, .is_main = true, .reads = true};
    r.trainer = t->trainer, r.loader = t->loader, r.tokenizer = t->tokenizer;
    stop_init(&r.stop, comm_self(), false, 0);
    r.checkpoint_folder = file_join(dump, "checkpoint");
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
    CHECK_STATUS(OK, run_state_save(&r, false));
    CHECK(r.saved_step == 2);
    char *manifest = file_join(r.checkpoint_folder, "step-2/manifest.json");
    CHECK(file_exists(manifest));
    CHECK_STATUS(OK, file_remove_tree(manifest));
    CHECK_STATUS(OK, run_state_save(&r, false)); /* it was saved */
    CHECK(!file_exists(manifest));
    CHECK_STATUS(OK, (r.saved_step = -1, run_state_save_now(&r)));
    CHECK(file_exists(manifest));
    float weight = r.trainer.weights[5];
    CHECK_STATUS(OK, checkpointer_close(r.checkpointer, false));
    loader_close(t.loader); /* a loader resumes only before its first row */
    t.loader = NULL;
    r.loader = NULL, r.reads = false;
    r.trainer.steps_done = 0, r.trainer.weights[5] = 0;
    CHECK_STATUS(OK, run_state_fill(&r));
    CHECK(r.trainer.steps_done == 2 && r.saved_step == 2 && r.trainer.weights[5] == weight);
    t.trainer = r.trainer;
    free(manifest), free(r.checkpoint_folder);
    training_close(&t);
}
