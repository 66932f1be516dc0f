// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "base/file.h"
#include "train/run.h"

static void load(struct config *c, const char *const *settings, int n)
{
    CHECK_STATUS(OK, config_load(c, NULL, settings, n));
}

TEST(the_tokenizer_is_found_under_its_older_names_too)
{
    struct config c;
    load(&c, (const char *const[]){"model.tokenizer_path=old.model"}, 1);
    CHECK(!strcmp(run_tokenizer_path(&c), "old.model"));
    config_release(&c);
    load(&c, (const char *const[]){"model.tokenizer_path=old.model", "data.tokenizer=bytes"}, 2);
    CHECK(!strcmp(run_tokenizer_path(&c), "bytes"));
    config_release(&c);
}

TEST(the_data_order_has_the_seed_of_the_run_unless_it_has_its_own)
{
    struct config c;
    struct source_config one;
    load(&c, (const char *const[]){"debug.seed=5", "training.dataset_path=a.txt"}, 2);
    struct data_config d = run_data_config(&c, &one);
    CHECK(d.seed == 5 && d.num_sources == 1 && !strcmp(d.sources[0].path, "a.txt"));
    config_release(&c);
    load(&c, (const char *const[]){"debug.seed=5", "data.seed=6"}, 2);
    CHECK(run_data_config(&c, &one).seed == 6);
    config_release(&c);
}

TEST(the_data_order_knows_the_rows_of_the_run_and_of_a_micro_batch)
{
    struct config c;
    struct source_config one;
    struct mesh mesh;
    static const struct {
        const char *pipeline;
        int ranks, block;
        int64_t rows;
    } cases[] = {{"parallelism.pipeline_parallel_degree=1", 4, 2, 700 * 16},
                 {"parallelism.pipeline_parallel_degree=2", 4, 1, 700 * 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        load(&c,
             (const char *const[]){"training.dataset_path=mock", "training.local_batch_size=2",
                                   "training.global_batch_size=16", "training.steps=700",
                                   cases[i].pipeline},
             5);
        CHECK_STATUS(OK, mesh_resolve(&mesh, &c.parallelism, 3, cases[i].ranks));
        struct data_config d = run_data_config(&c, &one);
        struct loader_options o = run_loader_options(&c, &mesh, &d, NULL, 100);
        CHECK(o.run_rows == cases[i].rows && o.block == cases[i].block);
        config_release(&c);
    }
}

TEST(a_run_that_holds_a_finished_checkpoint_has_nothing_left_to_do)
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
    arena_release(&t.machine.on->scratch);
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
