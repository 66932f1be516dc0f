/* test_ranks_elastic.c -- with training.determinism = "elastic" a run has the same checkpoints and
 * metrics on any number of data-parallel ranks, also if that number changes. */
// SPDX-License-Identifier: Apache-2.0
#include "system/device_runs.h"
#include "system/layouts.h"
#include "system/runs.h"

#define ELASTIC "training.determinism=elastic"
#define SPLIT   "optimizer.master_weights=split", "optimizer.state_dtype=bfloat16"
#define MASKED  "objective.name=masked", "objective.mask_token=<|mask|>"
#define FLOAT8  "model.converters=[\"float8\"]", "model.ffn_hidden=32"

/* `settings` and a layout, over all validations and steps. */
static const char *train(int ranks, const char *const *layout, const char *const *settings,
                         const char *corpus)
{
    const char *dump = test_folder(), *all[20] = {ELASTIC, "metrics.log_freq=1"};
    int n = 2;
    while (*layout) all[n++] = *layout++;
    while (*settings) all[n++] = *settings++;
    device_run_train(ON_HOST, ranks, all, corpus, dump);
    return dump;
}

static void check_same(const char *a, const char *b, const char *step)
{
    char folder[64];
    snprintf(folder, sizeof folder, "checkpoint/%s", step);
    const char *x = test_path(a, folder), *y = test_path(b, folder);
    runs_check_same_files(x, y, ".safetensors"); /* weights and moments */
    runs_check_same_files(x, y, "state.json");
}

static const char *write_corpus(void)
{
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    return corpus;
}

struct elastic_layout {
    int ranks;
    const char *settings[4];
};

/* Trains in both layouts and compares checkpoints and metrics. */
static void check_layouts(const struct elastic_layout *layouts, size_t count,
                          const char *const *settings, const char *corpus)
{
    const char *first = NULL;
    for (size_t i = 0; i < count; i++) {
        const char *dump = train(layouts[i].ranks, layouts[i].settings, settings, corpus);
        if (!i) first = dump;
        if (!i) continue;
        check_same(first, dump, "step-3");
        check_same(first, dump, "step-6");
        runs_check_same_metrics(first, dump);
    }
}

TEST(elastic_runs_have_the_same_bits_in_all_data_parallel_layouts)
{
    static const struct elastic_layout layouts[] = {
        {1, {SHARD(1)}},
        {2, {SHARD(2)}},
        {2, {SHARD(1), COPIES(2)}},
        {4, {SHARD(4)}},
        {4, {SHARD(4), ZERO1}},
        {4, {SHARD(2), COPIES(2)}},
        {4, {SHARD(2), COPIES(2), ZERO1}},
        {4, {SHARD(1), COPIES(4)}},
        {8, {SHARD(8), "parallelism.fsdp_reshard_after_forward=never"}},
    };
    static const char *const kinds[][2] = {{NULL}, {HALF, NULL}};
    const char *corpus = write_corpus();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        check_layouts(layouts, sizeof layouts / sizeof *layouts, kinds[i], corpus);
}

TEST(elastic_runs_have_the_same_bits_with_every_kind_of_state)
{
    static const struct elastic_layout layouts[] = {
        {1, {SHARD(1)}}, {4, {SHARD(4)}}, {4, {SHARD(2), COPIES(2)}}};
    static const char *const kinds[][7] = {
        {HALF, SPLIT},
        {"optimizer.name=Muon"},
        {HALF, SPLIT, "optimizer.name=Muon"},
        {HALF, "training.local_batch_size=2", "training.global_batch_size=32"},
        {"training.global_batch_size=24", "training.canonical_microbatches=4"},
        {HALF, "optimizer.master_weights=split", EIGHT_BIT},
        {"model.tie_embeddings=true"},
        {"model.attn_mask_type=block_causal", "activation_checkpoint.mode=full"},
        /* The head skips chunks of 256 tokens. */
        {MASKED, "training.seq_len=64", "training.local_batch_size=8",
         "training.global_batch_size=64"},
        {FLOAT8, "float8.recipe_name=delayed", "validation.enable=false"},
        {FLOAT8, "float8.recipe_name=tensorwise", "validation.enable=false"},
    };
    const char *corpus = write_corpus();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        check_layouts(layouts, sizeof layouts / sizeof *layouts, kinds[i], corpus);
}

/* The other degrees stay the same. */
TEST(elastic_runs_have_the_same_bits_beside_other_kinds_of_parallelism)
{
    static const struct {
        struct elastic_layout layouts[3];
        const char *settings[3];
    } kinds[] = {
        {{{2, {TP(2), SHARD(1)}}, {4, {TP(2), SHARD(2)}}, {8, {TP(2), SHARD(2), COPIES(2)}}},
         {NULL}},
        {{{4, {TP(4), SHARD(1)}}, {8, {TP(4), SHARD(2)}}, {8, {TP(4), SHARD(1), COPIES(2)}}},
         {NULL}},
        {{{2, {CP(2), SHARD(1)}}, {4, {CP(2), SHARD(2)}}, {8, {CP(2), SHARD(2), COPIES(2)}}},
         {NULL}},
        {{{2, {PP(2), SHARD(1)}}, {4, {PP(2), SHARD(2)}}, {8, {PP(2), SHARD(2), COPIES(2)}}},
         {"parallelism.pipeline_parallel_schedule=Interleaved1F1B", "model.n_layers=4",
          "model.tie_embeddings=true"}},
    };
    const char *corpus = write_corpus();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *settings[4] = {0};
        memcpy(settings, kinds[i].settings, sizeof kinds[i].settings);
        check_layouts(kinds[i].layouts, 3, settings, corpus);
    }
}

/* Three pieces of one run, of two steps each. */
TEST(an_elastic_run_that_resumes_on_4_2_and_1_ranks_has_the_bits_of_one_rank)
{
    static const struct elastic_layout chains[][3] = {
        {{4, {SHARD(4)}}, {2, {SHARD(2)}}, {1, {SHARD(1)}}},
        {{4, {SHARD(2), COPIES(2)}}, {2, {COPIES(2), SHARD(1)}}, {1, {SHARD(1)}}},
        {{1, {SHARD(1)}}, {8, {SHARD(4), COPIES(2)}}, {4, {SHARD(4), ZERO1}}},
    };
    static const char *const dtypes[] = {HALF, "training.mixed_precision_param=float32"};
    const char *corpus = write_corpus();
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
        const char *settings[] = {dtypes[k], "lr_scheduler.total_steps=6", "validation.freq=2",
                                  "training.steps=6", NULL};
        const char *straight = train(1, (const char *const[]){SHARD(1), NULL}, settings, corpus);
        for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
            static const char *const steps[] = {"training.steps=2", "training.steps=4",
                                                "training.steps=6"};
            const char *dump = test_folder();
            for (int piece = 0; piece < 3; piece++) {
                const struct elastic_layout *l = &chains[i][piece];
                const char *all[12] = {ELASTIC, "metrics.log_freq=1"};
                memcpy(all + 2, settings, 3 * sizeof *all);
                all[5] = steps[piece];
                for (int n = 0; l->settings[n]; n++) all[6 + n] = l->settings[n];
                device_run_train(ON_HOST, l->ranks, all, corpus, dump);
            }
            check_same(straight, dump, "step-6");
            runs_check_same_metrics(straight, dump);
        }
    }
}

/* By processes, with the kernels of this processor.  Gradients of weights are sums over 1024
 * tokens, which oneDNN would split among 8 or 16 threads. */
TEST(elastic_runs_in_float32_have_the_same_bits_with_any_number_of_threads)
{
    static const struct {
        int ranks;
        const char *threads;
    } runs[] = {{1, "1"}, {1, "16"}, {2, "8"}, {4, "2"}};
    static const char *const kinds[] = {"training.mixed_precision_param=float32",
                                        "optimizer.name=Muon"};
    const char *corpus = write_corpus(), *config = test_path(test_folder(), "c.toml");
    runs_write_config(config, corpus);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const char *first = NULL;
        for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
            struct text settings = {0}, err = {0};
            const char *dump = test_folder();
            text_addf(&settings,
                      ELASTIC " %s device.threads=%s training.seq_len=512 training.steps=2 "
                              "training.global_batch_size=8 checkpoint.interval=2",
                      kinds[k], runs[i].threads);
            CHECK(runs_train_ranks(runs[i].ranks, config, dump, settings.data, &err) == 0);
            if (!first) first = dump;
            check_same(first, dump, "step-2");
            runs_check_same_metrics(first, dump);
            text_release(&settings), text_release(&err);
        }
    }
}
