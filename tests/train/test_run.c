// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "base/file.h"
#include "train/run.h"

static void load(struct config *c, const char *const *settings, int n)
{
    CHECK_STATUS(OK, config_load(c, NULL, settings, n));
}

TEST(finished_run_resumes_and_does_nothing)
{
    struct training t;
    char dump[300];
    TRAINING_OPEN(&t, "debug.seed=1");
    snprintf(dump, sizeof dump, "job.dump_folder=%s", test_folder());
    char path[300];
    snprintf(path, sizeof path, "training.dataset_path=%s", t.config.training.dataset_path);
    struct config c;
    load(&c,
         (const char *const[]){dump, path, "model.dim=16", "model.n_layers=1", "model.n_heads=2",
                               "model.n_kv_heads=1", "model.ffn_hidden=16", "training.seq_len=16",
                               "training.steps=3", "checkpoint.enable=true", "data.streams=4",
                               "data.tokenizer=bytes", "lr_scheduler.warmup_steps=1",
                               "training.mixed_precision_param=float32"},
         14);
    arena_release(&t.machine.queue->scratch);
    CHECK_STATUS(OK, run_train(&c, &t.machine));
    CHECK_STATUS(OK, run_train(&c, &t.machine));
    char *metrics = file_join(c.job.dump_folder, "metrics.jsonl");
    struct text lines = {0};
    CHECK_STATUS(OK, file_read(metrics, 1 << 20, &lines));
    CHECK(strstr(lines.data, "\"step\":3") || strstr(lines.data, "\"step\": 3"));
    text_release(&lines);
    free(metrics);
    config_release(&c);
    training_close(&t);
}
