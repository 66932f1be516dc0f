// SPDX-License-Identifier: Apache-2.0
#include "train/run_report.h"

#include "system/runs.h"

/* A run of 40 steps on one rank; returns what it prints on stderr. */
static struct text train(const char *folder, int ranks, const char *settings)
{
    const char *config = test_path(folder, "run.toml"), *corpus = test_path(folder, "corpus.txt");
    struct text err = {0};
    runs_write_corpus(corpus, 20000);
    runs_write_config(config, corpus);
    CHECK(runs_train_ranks(ranks, config, test_path(folder, "out"), settings, &err) == 0);
    return err;
}

static void check_says(const struct text *log, const char *what)
{
    if (!strstr(log->data, what)) fail_msg("\"%s\" is not in:\n%s", what, log->data);
}

TEST(train_names_the_family_of_its_settings)
{
    struct text log = train(test_folder(), 1, "training.steps=1 model.qk_norm=true");
    check_says(&log, "a Qwen3 with ");
    text_release(&log);
}

TEST(train_says_what_it_will_do_and_what_it_has_done)
{
    const char *folder = test_folder();
    struct text log = train(
        folder, 1,
        "training.steps=20 data.validation_share=0.1 validation.enable=true validation.freq=10");
    check_says(&log, "a Llama with 35,168 parameters (dim 32, 2 layers, 259 tokens)\n");
    check_says(&log, "1 rank of ");
    check_says(&log, "steps 1 to 20: rows of 32 tokens, 4 per step; ");
    check_says(&log, ": a checkpoint every 10 steps and at the end");
    check_says(&log, "/out/checkpoint/step-10 saved: ");
    check_says(&log, "completed 20 steps and 2,560 tokens in ");
    check_says(&log, "; best validation loss ");
    check_says(&log, "/out/checkpoint/step-20; next: llamero generate ");
    text_release(&log);
    log = train(folder, 1, "training.steps=20 data.validation_share=0.1");
    check_says(&log,
               "training.steps = 20: no step is left after step 20; increase it to continue\n");
    CHECK(!strstr(log.data, "completed") && !strstr(log.data, "steps 21"));
    text_release(&log);
    log = train(folder, 1, "training.steps=24 data.validation_share=0.1");
    check_says(&log, "steps 21 to 24: ");
    check_says(&log, "completed 4 steps and 512 tokens in ");
    CHECK(!strstr(log.data, "best validation"));
    text_release(&log);
    log = train(test_folder(), 1, "training.steps=0 data.validation_share=0.1");
    check_says(&log, "training.steps = 0: nothing was trained\n");
    text_release(&log);
}

TEST(train_says_at_the_start_that_it_saves_nothing)
{
    struct text log = train(test_folder(), 1, "training.steps=2 checkpoint.enable=false");
    check_says(&log, "no checkpoint, as checkpoint.enable = false: the model is lost at the end");
    CHECK(!strstr(log.data, "next: "));
    text_release(&log);
}

TEST(only_rank_0_reports)
{
    struct text log = train(test_folder(), 2, "training.steps=2");
    check_says(&log, "2 ranks (dp_shard 2) of ");
    const char *first = strstr(log.data, "parameters (dim");
    CHECK(first && !strstr(first + 1, "parameters (dim"));
    text_release(&log);
}

TEST(report_forgets_a_validation_after_a_rollback)
{
    struct run_report t = {.best_loss = NAN};
    run_report_validation(&t, 10, 3);
    run_report_validation(&t, 20, 2);
    run_report_validation(&t, 30, 2.5);
    run_report_validation(&t, 40, NAN);
    CHECK(t.best_loss == 2 && t.best_step == 20);
    run_report_rollback(&t, 20);
    CHECK(t.best_loss == 2);
    run_report_rollback(&t, 10);
    CHECK(isnan(t.best_loss));
    run_report_validation(&t, 20, 4);
    CHECK(t.best_loss == 4);
}
