// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#define DATA "tests/infer/data/lm_eval/"
#define TASKS                                                                                      \
    " validation.enable=true validation.freq=5 validation.seq_len=256 validation.tasks=" DATA      \
    "piqa.jsonl,few=" DATA "arc.jsonl validation.task_items=5"

static const char base[] = "training.steps=10 lr_scheduler.total_steps=10 model.vocab_size=264 "
                           "training.mixed_precision_param=float32 device.threads=1 "
                           "metrics.enable_tensorboard=true";

static const char *new_folder(void)
{
    const char *folder = test_folder();
    runs_write_corpus(test_path(folder, "corpus.txt"), 20000);
    runs_write_config(test_path(folder, "run.toml"), test_path(folder, "corpus.txt"));
    return folder;
}

static void train(int ranks, const char *folder, const char *dump, const char *more)
{
    struct text settings = {0}, err = {0};
    text_addf(&settings, "%s%s", base, more);
    int code = runs_train_ranks(ranks, test_path(folder, "run.toml"), test_path(folder, dump),
                                settings.data, &err);
    if (code < 0) skip();
    if (code) fail_msg("%s", err.data);
    text_release(&settings), text_release(&err);
}

static const char *saved(const char *folder, const char *dump)
{
    return test_path(test_path(folder, dump), "checkpoint/step-10");
}

TEST(tasks_are_scored_during_training_and_change_no_bit_of_it)
{
    const char *folder = new_folder();
    struct text lines = {0};
    train(1, folder, "plain", "");
    train(1, folder, "scored", TASKS);
    runs_check_same_files(saved(folder, "plain"), saved(folder, "scored"), ".safetensors");
    CHECK_STATUS(OK, file_read(test_path(folder, "scored/metrics.jsonl"), 1 << 20, &lines));
    CHECK(strstr(lines.data, "{\"step\":5,\"task\":\"piqa\",\"format\":\"piqa\",\"items\":5,"
                             "\"acc\":"));
    CHECK(strstr(lines.data, "{\"step\":10,\"task\":\"few\",\"format\":\"arc\",\"items\":5,"));
    CHECK(!strstr(lines.data, "validation_loss"));
    text_release(&lines);
}

TEST(tasks_have_the_scores_that_eval_gives_the_checkpoint)
{
    const char *folder = new_folder();
    struct text out = {0};
    struct json *v;
    train(1, folder, "one",
          TASKS " validation.dataset_path=tests/infer/data/lm_eval/lambada.jsonl");
    CHECK(runs_metric(test_path(folder, "one"), "validation_loss") > 0);
    CHECK(LLAMERO(&out, NULL, "eval", saved(folder, "one"), "--task", "few=" DATA "arc.jsonl",
                  "--limit", "5", "--seq-len", "256", "--json") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "eval", &v));
    const struct json *task = json_first(json_get(v, "tasks"));
    const char *const keys[] = {"acc", "acc_norm", "acc_stderr"};
    for (int i = 0; i < 3; i++)
        CHECK_NEAR(json_number(json_get(task, keys[i])),
                   runs_metric(test_path(folder, "one"), keys[i]), 1e-12);
    json_free(v);
    text_release(&out);
}

TEST(ranks_of_every_axis_score_tasks_as_one_rank)
{
    static const char *const axes[] = {"data_parallel_shard", "tensor_parallel", "context_parallel",
                                       "pipeline_parallel"};
    const char *folder = new_folder();
    train(1, folder, "one", TASKS);
    for (int i = 0; i < 4; i += TEST_SLOWED ? 3 : 1) {
        char more[400];
        snprintf(more, sizeof more, TASKS " parallelism.%s_degree=2", axes[i]);
        train(2, folder, axes[i], more);
        CHECK_NEAR(runs_metric(test_path(folder, axes[i]), "acc_norm"),
                   runs_metric(test_path(folder, "one"), "acc_norm"), 1e-12);
    }
}

TEST(tasks_during_training_require_a_tokenizer)
{
    const char *folder = new_folder();
    struct text err = {0};
    CHECK(runs_train(test_path(folder, "run.toml"), test_path(folder, "out"),
                     "data.tokenizer= model.vocab_size=264 validation.enable=true "
                     "validation.tasks=" DATA "arc.jsonl",
                     &err) == 78);
    text_release(&err);
}
