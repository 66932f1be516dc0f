// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

/* What a launcher starts, as users do it; how ranks share a model out is test_ranks.c's. */
static const char base[] =
    "model.vocab_size=264 training.local_batch_size=1 training.global_batch_size=4 "
    "training.steps=12 lr_scheduler.total_steps=12 metrics.log_freq=1 checkpoint.enable=true "
    "checkpoint.interval=6 device.threads=1 training.mixed_precision_param=float32 ";

static char *settings_of(const char *more)
{
    struct text t = {0};
    text_addf(&t, "%s%s", base, more);
    char *settings = heap_string(t.data, t.len);
    text_release(&t);
    return settings;
}

static int train(int ranks, const char *folder, const char *dump, const char *more,
                 struct text *err)
{
    char *settings = settings_of(more);
    int code = runs_train_ranks(ranks, test_path(folder, "run.toml"), test_path(folder, dump),
                                settings, err);
    free(settings);
    if (code < 0) skip();
    return code;
}

static const char *new_folder(void)
{
    const char *folder = test_folder();
    runs_write_corpus(test_path(folder, "corpus.txt"), 60000);
    runs_write_config(test_path(folder, "run.toml"), test_path(folder, "corpus.txt"));
    return folder;
}

TEST(ranks_of_a_launcher_train_what_one_rank_trains_and_others_go_on)
{
    const char *folder = new_folder();
    CHECK(train(1, folder, "one", "", NULL) == 0);
    CHECK(train(4, folder, "four", "parallelism.tensor_parallel_degree=2 training.steps=6", NULL) ==
          0);
    CHECK(train(2, folder, "four", "", NULL) == 0); /* goes on from the four ranks' step 6 */
    double loss = runs_metric(test_path(folder, "one"), "loss");
    CHECK_NEAR(runs_metric(test_path(folder, "four"), "loss"), loss, 1e-5);
    CHECK(runs_metric(test_path(folder, "four"), "tokens_seen") ==
          runs_metric(test_path(folder, "one"), "tokens_seen"));
}

TEST(a_layout_that_does_not_fit_is_refused_once_by_all_ranks)
{
    struct text err = {0};
    const char *folder = new_folder(), *said;
    CHECK(train(3, folder, "three", "parallelism.tensor_parallel_degree=3", &err) == 78);
    said = strstr(err.data, "tensor_parallel_degree = 3");
    CHECK(said && !strstr(said + 1, "tensor_parallel_degree = 3"));
    CHECK(strstr(err.data, "would"));
    text_release(&err);
}

TEST(a_file_that_is_missing_is_told_once_by_all_ranks)
{
    struct text err = {0};
    const char *folder = new_folder(), *said;
    CHECK(train(2, folder, "two", "data.tokenizer=/nowhere.model", &err) == 66);
    said = strstr(err.data, "/nowhere.model: no such file");
    CHECK(said && !strstr(said + 1, "/nowhere.model: no such file"));
    text_release(&err);
}
