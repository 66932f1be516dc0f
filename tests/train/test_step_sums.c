// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "train/training.h"

#include "system/layouts.h"
#include "system/runs.h"
#include "train/step_sums.h"

enum { STEPS = TEST_SLOWED ? 2 : 4, SETTINGS = 40 };

/* A few steps over some layout, and what rank 0 knows of them. */
struct steps {
    const char *settings[SETTINGS];
    int num_settings;
    struct step_result results[STEPS];
    double parameter_norm;
};

static enum status train_rank(const struct comm *world, void *context)
{
    struct steps *s = context;
    struct training r;
    struct step_result result;
    double norm;
    TRY(training_open_rank(&r, world, s->settings, s->num_settings));
    for (int step = 0; step < STEPS; step++) {
        TRY(trainer_step(&r.trainer, r.loader, &result));
        if (!world->rank) s->results[step] = result;
    }
    TRY(trainer_parameter_norm(&r.trainer, &norm));
    if (!world->rank) s->parameter_norm = norm;
    training_close(&r);
    return STATUS_OK;
}

static void train(struct steps *s, int ranks, const char *corpus, const char *const *settings)
{
    static const char *const common[] = {TRAINING_OF_RANKS, "training.steps=50"};
    *s = (struct steps){.num_settings = sizeof common / sizeof *common};
    memcpy(s->settings, common, sizeof common);
    s->settings[s->num_settings++] = corpus;
    for (; *settings; settings++) s->settings[s->num_settings++] = *settings;
    CHECK(s->num_settings <= SETTINGS);
    CHECK_STATUS(OK, ranks_run(ranks, train_rank, s));
}

#define LAYOUT(...)  ((const char *const[]){__VA_ARGS__, NULL})
#define ELASTIC      "training.determinism=elastic"
#define CANONICAL(n) "training.canonical_microbatches=" #n
#define MASKED       "objective.name=masked", "objective.mask_token=<|mask|>"
#define DIFFUSION    "objective.name=diffusion", "objective.mask_token=<|mask|>"
#define RANK_MEAN    "training.loss_norm=rank_mean"

/* Trains with some settings over 1, 2, 4 and 8 data-parallel ranks, each of `ranks` ranks; returns
 * in how many steps the losses or norms differ in any bit from those of the first. */
static int count_differences(int ranks, const char *const *settings)
{
    static const struct {
        int readers;
        const char *shard, *copies, *zero;
    } layouts[] = {{1, SHARD(1), COPIES(1), ZERO1}, {2, SHARD(2), COPIES(1), NULL},
                   {2, SHARD(1), COPIES(2), NULL},  {4, SHARD(4), COPIES(1), ZERO1},
                   {4, SHARD(2), COPIES(2), NULL},  {8, SHARD(8), COPIES(1), NULL}};
    char corpus[256];
    struct steps first;
    int differences = 0;
    snprintf(corpus, sizeof corpus, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(corpus, '=') + 1, 60000);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const char *all[16] = {layouts[i].shard, layouts[i].copies};
        struct steps s;
        int n = 2;
        for (int k = 0; settings[k]; k++) all[n++] = settings[k];
        all[n] = layouts[i].zero;
        if (layouts[i].readers * ranks > 8) continue;
        train(&s, layouts[i].readers * ranks, corpus, all);
        if (!i) first = s;
        differences += s.parameter_norm != first.parameter_norm;
        for (int step = 0; step < STEPS; step++) {
            const struct step_result *a = &s.results[step], *b = &first.results[step];
            CHECK(isfinite(a->loss) && a->grad_norm > 0);
            CHECK_NEAR(a->loss, b->loss, 1e-4);
            differences += a->loss != b->loss || a->grad_norm != b->grad_norm;
        }
    }
    return differences;
}

TEST(elastic_losses_and_norms_have_the_same_bits_on_any_number_of_ranks)
{
    static const struct {
        int ranks; /* of a data-parallel rank */
        const char *settings[8];
    } kinds[] = {
        {1, {ELASTIC}},
        {1, {ELASTIC, HALF}},
        {1, {ELASTIC, CANONICAL(8), "training.global_batch_size=24"}},
        {1, {ELASTIC, "training.local_batch_size=2", "training.global_batch_size=32"}},
        {1, {ELASTIC, MASKED, RANK_MEAN}},
        {1, {ELASTIC, DIFFUSION}},
        {1, {ELASTIC, "model.tie_embeddings=true", "training.max_norm=0.01"}},
        {2, {ELASTIC, TP(2)}},
        {4, {ELASTIC, TP(4)}},
        {2, {ELASTIC, CP(2), MASKED}},
        {2, {ELASTIC, CP(2), DIFFUSION, RANK_MEAN}},
        {2, {ELASTIC, PP(2), "model.tie_embeddings=true"}},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int differences = count_differences(kinds[i].ranks, kinds[i].settings);
        if (differences) print_error("kind %zu: %d differences\n", i, differences);
        CHECK(!differences);
    }
    CHECK(count_differences(1, LAYOUT("training.determinism=layout")) > 0);
}

/* The definitions agree: only the last digits of a sum depend on its order. */
TEST(elastic_sums_are_those_of_the_layout_but_for_rounding)
{
    char corpus[256];
    struct steps layout, elastic;
    snprintf(corpus, sizeof corpus, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(corpus, '=') + 1, 60000);
    for (int tp = 1; tp <= 4; tp *= 2) {
        static const char *const degrees[] = {TP(1), TP(2), NULL, TP(4)};
        train(&layout, 2 * tp, corpus, LAYOUT(degrees[tp - 1], SHARD(2)));
        train(&elastic, 2 * tp, corpus, LAYOUT(degrees[tp - 1], SHARD(2), ELASTIC));
        CHECK_NEAR(elastic.parameter_norm, layout.parameter_norm, 1e-7);
        for (int step = 0; step < STEPS; step++) {
            const struct step_result *a = &elastic.results[step], *b = &layout.results[step];
            CHECK_NEAR(a->loss, b->loss, 1e-6);
            CHECK_NEAR(a->grad_norm, b->grad_norm, 1e-6);
        }
    }
}

/* max_loss is the largest mean of a canonical microbatch, which is what a rank has in a layout with
 * one microbatch per rank. */
TEST(elastic_max_loss_is_that_of_as_many_ranks_as_microbatches)
{
    char corpus[256];
    struct steps layout, elastic;
    snprintf(corpus, sizeof corpus, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(corpus, '=') + 1, 60000);
    for (int i = 0; i < 2; i++) {
        const char *norm = i ? RANK_MEAN : "training.loss_norm=token_mean";
        train(&layout, 8, corpus, LAYOUT(SHARD(8), norm, MASKED));
        train(&elastic, 2, corpus, LAYOUT(SHARD(2), norm, MASKED, ELASTIC));
        for (int step = 0; step < STEPS; step++) {
            CHECK(elastic.results[step].max_loss > elastic.results[step].loss);
            CHECK_NEAR(elastic.results[step].max_loss, layout.results[step].max_loss, 1e-6);
        }
    }
}
