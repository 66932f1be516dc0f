// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "comm/ranks.h"
#include "system/layouts.h"
#include "system/runs.h"
#include "tensor/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static void check_plan(const char *optimizer)
{
    struct training t;
    struct memory_plan plan;
    TRAINING_OPEN(&t, "checkpoint.enable=true", "checkpoint.async_mode=async", optimizer);
    const struct trainer *r = &t.trainer;
    struct arena scratch = t.machine.queue->scratch;
    t.machine.queue->scratch = (struct arena){0};
    CHECK_STATUS(OK, trainer_plan(&t.config, &r->model.shape, &t.machine, &plan));
    CHECK(memory_plan_total(&plan) == r->run.size + r->shared.size + r->step.size + scratch.size);
    t.machine.queue->scratch = scratch;
    training_steps(&t, 1);
    CHECK(r->step.peak == r->step.size);
    training_close(&t);
}

TEST(plan_equals_the_memory_of_the_run)
{
    check_plan("optimizer.name=AdamW");
    check_plan("optimizer.name=Muon");
}

/* Bytes of moments, and of their copy for asynchronous saves. */
static void check_muon(const char *moments, size_t each)
{
    struct training adamw, muon;
    struct memory_plan a, b;
    size_t matrices = 0;
    TRAINING_OPEN(&adamw, "checkpoint.enable=true", "checkpoint.async_mode=async", moments);
    TRAINING_OPEN(&muon, "checkpoint.enable=true", "checkpoint.async_mode=async", moments,
                  "optimizer.name=Muon");
    const struct layout *l = &muon.trainer.whole;
    for (int i = 0; i < l->num_tensors; i++)
        if (optim_is_muon(&muon.config.optimizer, l->tensors[i].id))
            matrices += l->tensors[i].elements;
    CHECK(adamw.trainer.optim.exp_avg_sq_shard == &adamw.trainer.shard); /* no second list of runs */
    struct model_shape shape = muon.trainer.shape;
    CHECK_STATUS(OK, trainer_plan(&adamw.config, &shape, &adamw.machine, &a));
    CHECK_STATUS(OK, trainer_plan(&muon.config, &shape, &muon.machine, &b));
    CHECK(matrices > 0 && a.bytes[MEMORY_optimizer] - b.bytes[MEMORY_optimizer] == each * matrices);
    CHECK(a.bytes[MEMORY_checkpoint] - b.bytes[MEMORY_checkpoint] == each * matrices);
    training_close(&adamw), training_close(&muon);
}

TEST(muon_has_no_second_moments_of_matrices)
{
    check_muon("optimizer.state_dtype=float32", 4);
    check_muon("optimizer.state_dtype=bfloat16", 2);
}

TEST(split_weights_and_bf16_moments_use_less_memory_and_train_alike)
{
    struct training plain, both;
    const char *half = "training.mixed_precision_param=bfloat16";
    double norm[2];
    TRAINING_OPEN(&plain, half);
    TRAINING_OPEN(&both, half, "optimizer.master_weights=split", "optimizer.state_dtype=bfloat16");
    size_t n = plain.trainer.shard.elements;
    CHECK(plain.trainer.run.size - both.trainer.run.size == 6 * n);
    CHECK_STATUS(OK, trainer_parameter_norm(&plain.trainer, &norm[0]));
    CHECK_STATUS(OK, trainer_parameter_norm(&both.trainer, &norm[1]));
    CHECK(norm[0] == norm[1]);
    double loss = training_steps(&plain, 30);
    CHECK(fabs(training_steps(&both, 30) - loss) < 0.02 * loss);
    training_close(&plain), training_close(&both);
}

static enum status alloc_nothing(size_t bytes, void **base)
{
    *base = NULL;
    FAIL(MEMORY, "no memory for %zu bytes", bytes);
}

/* Rank 1 has no device memory when it opens its trainer again. */
static enum status open_without_memory(const struct comm *world, void *context)
{
    static const struct device no_memory = {.own = {.alloc = alloc_nothing}};
    const char *const settings[] = {TRAINING_OF_RANKS, TP(2), context};
    struct training t;
    TRY(training_open_rank(&t, world, settings, sizeof settings / sizeof *settings));
    struct model_shape shape = t.trainer.shape;
    trainer_close(&t.trainer);
    if (world->rank == 1) t.machine.queue->device = &no_memory;
    enum status st = trainer_open(&t.trainer, &t.config, &shape, &t.machine);
    t.machine.queue->device = NULL;
    RANK_CHECK(st == STATUS_MEMORY && status_is_shared());
    RANK_CHECK(strstr(status_message(), world->rank ? "no memory for " : "rank 1 failed: "));
    training_close(&t);
    return STATUS_OK;
}

TEST(trainer_open_fails_on_all_ranks_if_one_has_no_memory)
{
    char corpus[300];
    snprintf(corpus, sizeof corpus, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(corpus, '=') + 1, 60000);
    CHECK_STATUS(OK, ranks_run(2, open_without_memory, corpus));
}

static enum status alloc_any(size_t bytes, void **base)
{
    *base = heap(bytes);
    return STATUS_OK;
}

static void free_any(void *base, size_t bytes)
{
    (void)bytes;
    free(base);
}

TEST(a_gpu_without_pinned_memory_for_asynchronous_saves_says_so)
{
    static const struct device no_pinned = {.own = {alloc_any, free_any},
                                            .shared = {.alloc = alloc_nothing}};
    for (int async = 0; async < 2; async++) {
        struct training t;
        TRAINING_OPEN(&t, "checkpoint.enable=true",
                      async ? "checkpoint.async_mode=async_with_pinned_mem"
                            : "checkpoint.async_mode=disabled");
        struct model_shape shape = t.trainer.shape;
        trainer_close(&t.trainer);
        t.machine.queue->device = &no_pinned;
        CHECK_STATUS(MEMORY, trainer_open(&t.trainer, &t.config, &shape, &t.machine));
        CHECK_MESSAGE("no memory for ");
        CHECK(!!strstr(status_message(),
                       "checkpoint.async_mode = \"async_with_pinned_mem\" takes ") == async);
        t.machine.queue->device = NULL;
        training_close(&t);
    }
}

/* Bytes of this process's address space. */
static size_t mapped_bytes(void)
{
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%zu", &pages) == 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

TEST(a_cpu_without_memory_for_asynchronous_saves_says_so)
{
    if (TEST_SLOWED) skip(); /* sanitizers map memory themselves */
    struct training t;
    struct rlimit old;
    TRAINING_OPEN(&t, "model.vocab_size=200000", "checkpoint.enable=true",
                  "checkpoint.async_mode=async");
    struct model_shape shape = t.trainer.shape;
    const struct arena *scratch = &t.machine.queue->scratch;
    size_t others = t.trainer.run.size + t.trainer.step.size + scratch->size;
    size_t enough = others + t.trainer.shared.size / 4; /* except for the copy of the state */
    trainer_close(&t.trainer);
    CHECK(!getrlimit(RLIMIT_AS, &old));
    CHECK(!setrlimit(RLIMIT_AS, &(struct rlimit){mapped_bytes() + enough, old.rlim_max}));
    enum status st = trainer_open(&t.trainer, &t.config, &shape, &t.machine);
    CHECK(!setrlimit(RLIMIT_AS, &old));
    CHECK(st == STATUS_MEMORY);
    CHECK_MESSAGE("checkpoint.async_mode = \"async\" takes ");
    training_close(&t);
}
