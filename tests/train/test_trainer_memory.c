// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "backends/gpu/gpu.h"
#include "backends/gpu/queue.h"
#include "base/rng.h"
#include "comm/ranks.h"
#include "machine/machine.h"
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

/* Where a run trains: the reference loops or kernels of the CPU, or an emulated GPU. */
enum place { REFERENCE, KERNELS, GPU_32, GPU_64, GPU_WITH_FP8, PLACES };

static void open_place(struct machine *m, enum place place)
{
    CHECK_STATUS(OK, machine_alone(m));
    CHECK_STATUS(OK, cpu_ops_find(place == REFERENCE ? "reference" : "auto", &m->ops));
    if (place == GPU_32 || place == GPU_WITH_FP8) m->ops = &gpu_emu32_ops;
    if (place == GPU_64) m->ops = &gpu_emu64_ops;
    if (place < GPU_32)
        CHECK_STATUS(OK, cpu_queue_open(&m->queue, 2, 0));
    else
        CHECK_STATUS(OK, (place == GPU_64 ? gpu_emu64_open : gpu_emu32_open)(&m->queue, 0));
    if (place == GPU_WITH_FP8) ((struct gpu_queue *)m->queue)->native_fp8 = true;
}

static void close_place(struct machine *m, enum place place)
{
    if (place < GPU_32)
        cpu_queue_close(m->queue);
    else
        (place == GPU_64 ? gpu_emu64_close : gpu_emu32_close)(m->queue);
    groups_close(&m->groups);
}

static void fill_random(struct batch *b, int V)
{
    b->valid = b->B * b->T;
    for (size_t n = 0; n < (size_t)b->valid; n++) {
        b->ids_BT[n] = (int32_t)rng_below((uint64_t)V, 1, RNG_TEST, 0, n);
        b->labels_BT[n] = (b->ids_BT[n] * 7 + 3) % V;
        b->start_BT[n] = 0, b->end_BT[n] = b->T;
    }
}

/* Trains and validates; what the sizing pass reserved must be what these use at most. */
static void check_peaks(enum place place, const char *const *extra)
{
    const char *settings[32] = {"model.dim=64",
                                "model.n_layers=2",
                                "model.n_heads=4",
                                "model.n_kv_heads=2",
                                "model.ffn_hidden=96",
                                "model.vocab_size=96",
                                "training.local_batch_size=1",
                                "training.global_batch_size=2",
                                "training.seq_len=16",
                                "validation.enable=true",
                                "training.dataset_path=none",
                                "validation.dataset_path=none"};
    struct config config = {0};
    struct machine m = {0};
    struct model_shape shape;
    struct trainer t = {0};
    int n = 0;
    while (settings[n]) n++;
    for (int i = 0; extra[i]; i++) settings[n++] = extra[i];
    open_place(&m, place);
    CHECK_STATUS(OK, config_load(&config, NULL, settings, n));
    CHECK_STATUS(OK, model_shape_resolve(&shape, &config.model, 0));
    CHECK_STATUS(OK, trainer_open(&t, &config, &shape, &m));
    CHECK_STATUS(OK, trainer_init_weights(&t, 1));
    CHECK_STATUS(OK, trainer_sync_weights(&t));
    for (int i = 0; i < (TEST_SLOWED ? 1 : 2); i++) {
        struct step_result result = {0};
        trainer_begin_step(&t);
        fill_random(&t.batch, shape.V);
        CHECK_STATUS(OK, trainer_train_batch(&t, &result));
        fill_random(&t.evaluator.batch, shape.V);
        CHECK_STATUS(OK, evaluator_forward(&t.evaluator, &t.step));
    }
    const struct arena *scratch = &m.queue->scratch;
    bool is_exact = scratch->peak == scratch->size && t.step.peak == t.step.size &&
                    t.host_step.peak == t.host_step.size;
    if (!is_exact)
        print_error("place %d, %s, %s: scratch %zu of %zu, step %zu of %zu, host %zu of %zu\n",
                    (int)place, extra[0], extra[1] ? extra[1] : "", scratch->peak, scratch->size,
                    t.step.peak, t.step.size, t.host_step.peak, t.host_step.size);
    CHECK(is_exact);
    trainer_close(&t);
    close_place(&m, place);
    config_release(&config);
}
#define CHECK_PEAKS(place, ...) check_peaks(place, (const char *const[]){__VA_ARGS__, NULL})

#define FLOAT32 "training.mixed_precision_param=float32"
#define IN_BF16 "training.mixed_precision_param=bfloat16"
#define FLOAT8  "model.converters=[\"float8\"]"

TEST(a_run_needs_the_memory_that_its_sizing_pass_reserves)
{
    for (enum place place = 0; place < PLACES; place++) {
        CHECK_PEAKS(place, FLOAT32, "optimizer.name=Muon");
        CHECK_PEAKS(place, IN_BF16, "activation_checkpoint.mode=full");
        CHECK_PEAKS(place, IN_BF16, "validation.local_batch_size=4", "guard.replay_every=1");
        if (place < GPU_32) continue;
        CHECK_PEAKS(place, IN_BF16, "activation_checkpoint.offload=true", "optimizer.offload=true");
    }
}

/* Matrices are larger than what multiplies them: their FP8 values count only if not kept. */
TEST(a_run_in_fp8_needs_the_memory_that_its_sizing_pass_reserves)
{
    for (enum place place = 0; place < PLACES; place++) {
        CHECK_PEAKS(place, IN_BF16, FLOAT8, "activation_checkpoint.mode=none");
        CHECK_PEAKS(place, IN_BF16, FLOAT8, "activation_checkpoint.mode=full");
        CHECK_PEAKS(place, IN_BF16, FLOAT8, "float8.recipe_name=delayed");
        CHECK_PEAKS(place, IN_BF16, FLOAT8, "validation.local_batch_size=4");
        CHECK_PEAKS(place, IN_BF16, FLOAT8, "guard.replay_every=1");
        CHECK_PEAKS(place, IN_BF16, FLOAT8, "float8.force_recompute_fp8_weight_in_bwd=true");
    }
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
    CHECK(adamw.trainer.optim.exp_avg_sq_shard ==
          &adamw.trainer.shard); /* no second list of runs */
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
