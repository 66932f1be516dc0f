// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "system/runs.h"
#include "train/inputs.h"
#include "train/rank_check.h"
#include "train/run.h"
#include "train/training.h"

#include <sys/stat.h>
#include <unistd.h>

/* What each rank has, and what the message on rank 0 must have; NULL: the ranks agree. */
struct of_ranks {
    const char *with[3];
    const char *part;
};

/* Whether the check's result is the expected one. */
static enum status expect(const struct comm *c, const struct of_ranks *of, enum status st)
{
    RANK_CHECK(st == (of->part ? STATUS_CONFIG : STATUS_OK));
    if (of->part && c->rank == 0 && !strstr(status_message(), of->part))
        FAIL(DATA, "\"%s\" is not in: %s", of->part, status_message());
    return STATUS_OK;
}

static enum status check_config(const struct comm *c, void *context)
{
    const struct of_ranks *of = context;
    struct config config;
    TRY(config_load(&config, NULL, &of->with[c->rank], 1));
    enum status st = rank_check_config(&config, c);
    config_release(&config);
    return expect(c, of, st);
}

TEST(ranks_with_another_configuration_are_named)
{
    static const struct of_ranks cases[] = {
        {{"optimizer.lr=0.1", "optimizer.lr=1e-1", "optimizer.lr=0.1"}, NULL},
        {{"optimizer.lr=0.1", "optimizer.lr=0.2", "optimizer.lr=0.1"},
         "the configuration differs between ranks: optimizer.lr is 0.1 on ranks 0 2 ("},
        {{"training.steps=7", "training.steps=7", "debug.seed=3"}, "debug.seed is 0 on ranks 0-1"},
        {{"data.source.0.path=a", "data.source.0.path=a", "data.source.0.path=b"},
         "data.source.0.path is \"a\" on ranks 0-1"},
        {{"device.threads=1", "device.threads=2", "device.tune_file=x"}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct of_ranks of = cases[i];
        CHECK_STATUS(OK, ranks_run(3, check_config, &of));
    }
}

static enum status check_tokenizer(const struct comm *c, void *context)
{
    const struct of_ranks *of = context;
    const struct tokenizer_config options = {.meta_cuts = false};
    struct tokenizer *t = NULL;
    struct config config;
    TRY(config_load(&config, NULL, NULL, 0));
    if (of->with[c->rank]) TRY(tokenizer_open(&t, of->with[c->rank], &options));
    enum status st = rank_check_inputs(&config, t, c);
    tokenizer_close(t);
    config_release(&config);
    return expect(c, of, st);
}

/* Two tokenizer.json that differ in the IDs of two tokens. */
TEST(ranks_with_another_tokenizer_are_named)
{
    const struct tokenizer_config options = {.meta_cuts = false};
    const char *folder = test_folder(), *file = test_path(folder, "tokenizer.json"), *swapped;
    struct tokenizer *bytes;
    CHECK_STATUS(OK, tokenizer_open(&bytes, "bytes", &options));
    CHECK_STATUS(OK, tokenizer_copy(bytes, folder));
    swapped = test_path(folder, "swapped.json");
    runs_swap_ids(file, swapped, 'A', 'B');
    struct of_ranks same = {{file, file, "bytes"}, NULL}, none = {{NULL, NULL, NULL}, NULL};
    struct of_ranks other = {{file, file, swapped}, "the tokenizer is "};
    struct of_ranks missing = {{file, NULL, NULL}, " and not configured on ranks 1-2 ("};
    CHECK_STATUS(OK, ranks_run(2, check_tokenizer, &same));
    CHECK_STATUS(OK, ranks_run(3, check_tokenizer, &none));
    CHECK_STATUS(OK, ranks_run(3, check_tokenizer, &other));
    CHECK_STATUS(OK, ranks_run(3, check_tokenizer, &missing));
    tokenizer_close(bytes);
}

static enum status check_data(const struct comm *c, void *context)
{
    const struct of_ranks *of = context;
    struct training t;
    struct text path = {0}, validation = {0};
    const struct comm self = *comm_self();
    if (!of->with[c->rank]) return expect(c, of, rank_check_data(NULL, NULL, c));
    text_addf(&path, "data.source.0.path=%s/c*.txt", of->with[c->rank]);
    text_addf(&validation, "validation.dataset_path=%s/validation.txt", of->with[c->rank]);
    const char *const settings[] = {TRAINING_OF_RANKS, path.data, validation.data,
                                    "validation.enable=true", "validation.freq=5"};
    TRY(training_open_rank(&t, &self, settings, sizeof settings / sizeof *settings));
    enum status st = rank_check_data(&t.config, t.loader, c);
    training_close(&t);
    text_release(&path), text_release(&validation);
    return expect(c, of, st);
}

static const char *folder_with_data(const char *parent, const char *name)
{
    const char *folder = test_path(parent, name);
    CHECK(!mkdir(folder, 0777));
    runs_write_corpus(test_path(folder, "c1.txt"), 500000);
    runs_write_corpus(test_path(folder, "c2.txt"), 60000);
    runs_write_corpus(test_path(folder, "validation.txt"), 9000);
    return folder;
}

/* Replaces a word by one of the same length, so that the size remains. */
static void change_word(const char *path, size_t from)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    memcpy(strstr(t.data + from, "llama"), "camel", 5);
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&t);
}

TEST(ranks_with_other_data_are_named_and_copies_accepted)
{
    const char *parent = test_folder(), *a = folder_with_data(parent, "a"),
               *b = folder_with_data(parent, "b");
    struct of_ranks same = {{a, b, NULL}, NULL}, other = {{a, b, a}, NULL};
    CHECK_STATUS(OK, ranks_run(3, check_data, &same));
    CHECK_STATUS(OK, ranks_run(3, check_data, &other));
    change_word(test_path(b, "c2.txt"), 20000);
    other.part = "data.source.0, file 2, c2.txt, is 60";
    CHECK_STATUS(OK, ranks_run(3, check_data, &other));
    runs_write_corpus(test_path(b, "c2.txt"), 60000);
    change_word(test_path(b, "c1.txt"), 0); /* read in samples, which include the beginning */
    other.part = "data.source.0, file 1, c1.txt, is 500";
    CHECK_STATUS(OK, ranks_run(3, check_data, &other));
    runs_write_corpus(test_path(b, "c1.txt"), 500000);
    change_word(test_path(b, "validation.txt"), 0);
    other.part = "validation.dataset_path, file 1, validation.txt, is ";
    CHECK_STATUS(OK, ranks_run(3, check_data, &other));
    runs_write_corpus(test_path(b, "validation.txt"), 9000);
    runs_write_corpus(test_path(b, "c3.txt"), 100);
    other.part = "data.source.0, file 3, c3.txt, is missing on ranks 0 2 (";
    CHECK_STATUS(OK, ranks_run(3, check_data, &other));
}

static enum status check_start(const struct comm *c, void *context)
{
    const struct of_ranks *of = context;
    struct start s = {.folder = heap_strdup(of->with[c->rank]),
                      .native = strstr(of->with[c->rank], "step-") != NULL};
    enum status st = rank_check_start(&s, c);
    start_release(&s);
    return expect(c, of, st);
}

TEST(ranks_that_start_from_other_weights_are_named)
{
    static const char *const names[] = {"step-1", "step-2", "hf-1", "hf-2"};
    const char *parent = test_folder(), *at[4];
    for (size_t i = 0; i < 4; i++) {
        at[i] = test_path(parent, names[i]);
        CHECK(!mkdir(at[i], 0777));
        CHECK_STATUS(OK, file_write(test_path(at[i], "manifest.json"), "{1}", 3));
        CHECK_STATUS(OK, file_write(test_path(at[i], "model.safetensors"), "abc", 3));
    }
    struct of_ranks native = {{at[0], at[1]}, NULL}, foreign = {{at[2], at[3]}, NULL};
    CHECK_STATUS(OK, ranks_run(2, check_start, &native));
    CHECK_STATUS(OK, ranks_run(2, check_start, &foreign));
    CHECK_STATUS(OK, file_write(test_path(at[1], "manifest.json"), "{2}", 3));
    native.part = "the model to start from differs between ranks: manifest.json is 3 bytes";
    CHECK_STATUS(OK, ranks_run(2, check_start, &native));
    CHECK_STATUS(OK, file_write(test_path(at[3], "model.safetensors"), "abd", 3));
    foreign.part = "model.safetensors is 3 bytes";
    CHECK_STATUS(OK, ranks_run(2, check_start, &foreign));
    CHECK(!unlink(test_path(at[3], "model.safetensors")));
    foreign.part = " and missing on rank 1 (";
    CHECK_STATUS(OK, ranks_run(2, check_start, &foreign));
}

/* A step with every collective checked, on a mesh in which all groups have two ranks. */
static enum status train_checked(const struct comm *c, void *context)
{
    const char *corpus = context;
    struct training t;
    struct step_result result;
    const char *const settings[] = {TRAINING_OF_RANKS,
                                    corpus,
                                    "debug.check_collectives=true",
                                    "parallelism.tensor_parallel_degree=2",
                                    "parallelism.pipeline_parallel_degree=2",
                                    "parallelism.data_parallel_replicate_degree=2"};
    TRY(training_open_rank(&t, c, settings, sizeof settings / sizeof *settings));
    rank_check_enable(&t.config, &t.machine.groups);
    for (int i = 0; i < 2; i++) TRY(trainer_step(&t.trainer, t.loader, &result));
    TRY(rank_check_collectives(&t.trainer));
    RANK_CHECK(t.machine.groups.of[GROUP_tp].counts->collectives > 10);
    if (c->rank == 7) t.machine.groups.of[GROUP_tp].counts->hash ^= 1; /* as if another had run */
    enum status st = rank_check_collectives(&t.trainer);
    RANK_CHECK(st == STATUS_COMM); /* also of the other ranks, as these two have failed */
    bool is_named = strstr(status_message(), "the sequence of collectives differs") != NULL;
    training_close(&t);
    if (c->rank >= 6 && is_named) FAIL(IO, "%s", status_message());
    return st;
}

TEST(ranks_check_their_collectives_in_every_group)
{
    char corpus[300];
    snprintf(corpus, sizeof corpus, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(corpus, '=') + 1, 60000);
    CHECK_STATUS(IO, ranks_run(8, train_checked, corpus));
    CHECK_MESSAGE("differs between ranks: tp is at number");
}

struct diverging_run {
    char corpus[300], dump[300];
    const char *every; /* guard.check_collectives */
};

/* A run in which rank 1 seems to have started another collective before its first step. */
static enum status run_diverging(const struct comm *c, void *context)
{
    const struct diverging_run *run = context;
    struct training t;
    const char *const settings[] = {TRAINING_OF_RANKS,
                                    run->corpus,
                                    run->dump,
                                    run->every,
                                    "training.steps=3",
                                    "checkpoint.enable=false",
                                    "metrics.log_freq=10",
                                    "metrics.enable_tensorboard=false"};
    TRY(training_open_rank(&t, c, settings, sizeof settings / sizeof *settings));
    arena_release(&t.machine.queue->scratch);
    if (c->rank == 1) t.machine.groups.of[GROUP_shard].counts->hash ^= 1;
    enum status st = run_train(&t.config, &t.machine);
    if (st == STATUS_COMM && c->rank == 1)
        st = status_fail(STATUS_IO, __FILE__, __LINE__, "rank 1: %s", status_message());
    training_close(&t);
    return st;
}

TEST(a_run_ends_if_its_ranks_started_other_collectives)
{
    struct diverging_run run = {.every = "guard.check_collectives=2"};
    snprintf(run.corpus, sizeof run.corpus, "training.dataset_path=%s/corpus.txt", test_folder());
    snprintf(run.dump, sizeof run.dump, "job.dump_folder=%s/out", test_folder());
    runs_write_corpus(strchr(run.corpus, '=') + 1, 60000);
    CHECK_STATUS(IO, ranks_run(2, run_diverging, &run));
    CHECK_MESSAGE("rank 1: the sequence of collectives differs between ranks: shard is at number");
    run.every = "guard.check_collectives=0";
    CHECK_STATUS(OK, ranks_run(2, run_diverging, &run));
}
