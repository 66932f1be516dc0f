// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "train/training.h"

#include "system/layouts.h"
#include "system/runs.h"
#include "train/inputs.h"

#include <pthread.h>

/* Trains the same model over many parallel layouts; ranks are threads. */
enum { STEPS = TEST_SLOWED ? 4 : 10, SETTINGS = 48 };

struct layout_run {
    const char *settings[SETTINGS];
    int num_settings, ranks;
    double loss[STEPS], norm[STEPS];
    double validation; /* mean validation loss after the last step, if enabled */
    int64_t validated; /* tokens */
    float *weights;    /* the whole model in the layout of one rank; every rank copies its shard */
    size_t elements;
    pthread_mutex_t lock;
};

/* Copies this rank's weights into the whole model; several ranks may hold the same ones. */
static void copy_weights(const struct trainer *t, struct layout_run *l)
{
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < t->shard.count; i++) {
        const struct shard_run *p = &t->shard.runs[i];
        size_t at = t->whole.tensors[p->tensor].offset + p->first;
        BUG_IF(at + p->count > l->elements);
        memcpy(l->weights + at, t->optim.weights + p->at, p->count * sizeof *l->weights);
    }
    pthread_mutex_unlock(&l->lock);
}

static enum status validate_rank(struct training *r, struct layout_run *l)
{
    const struct trainer *t = &r->trainer;
    struct loader_options o =
        inputs_loader_options(&r->config, &r->machine.mesh, &r->data, r->tokenizer, t->shape.V);
    struct loader *loader = NULL;
    struct evaluation e;
    o.once = o.validation = true;
    if (r->loader) TRY(loader_open(&loader, &o));
    TRY(evaluator_run(&r->trainer.evaluator, loader, -1, &r->trainer.step, &e));
    loader_close(loader);
    if (r->machine.groups.of[GROUP_world].rank) return STATUS_OK;
    l->validation = e.loss_sum / (double)e.tokens, l->validated = e.tokens;
    return STATUS_OK;
}

static enum status train_rank(const struct comm *world, void *context)
{
    struct layout_run *l = context;
    struct training r;
    TRY(training_open_rank(&r, world, l->settings, l->num_settings));
    for (int step = 0; step < STEPS; step++) {
        struct step_result s;
        TRY(trainer_step(&r.trainer, r.loader, &s));
        RANK_CHECK(s.max_loss >= s.loss * (1 - 1e-6));
        if (world->rank == 0) l->loss[step] = s.loss, l->norm[step] = s.grad_norm;
    }
    if (r.config.validation.enable) TRY(validate_rank(&r, l));
    /* Replicas hold the same weights, so one of them copies. */
    if (r.machine.groups.of[GROUP_replicate].rank == 0) copy_weights(&r.trainer, l);
    training_close(&r);
    return STATUS_OK;
}

static void run_layout(struct layout_run *l, int ranks, const char *data,
                       const char *const *settings)
{
    static const char *const tiny[] = {TRAINING_OF_RANKS, "training.steps=50"};
    *l = (struct layout_run){.ranks = ranks, .elements = 1 << 16};
    pthread_mutex_init(&l->lock, NULL);
    for (size_t i = 0; i < sizeof tiny / sizeof *tiny; i++)
        l->settings[l->num_settings++] = tiny[i];
    while (*settings) l->settings[l->num_settings++] = *settings++;
    l->settings[l->num_settings++] = data;
    l->weights = heap(l->elements * sizeof *l->weights);
    CHECK_STATUS(OK, ranks_run(ranks, train_rank, l));
}

static double max_relative_difference(const double *x, const double *y, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) most = fmax(most, fabs(x[i] / y[i] - 1));
    return most;
}

/* Euclidean, over all weights. */
static double distance(const struct layout_run *a, const struct layout_run *b)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < a->elements; i++) {
        double x = (double)a->weights[i], y = (double)b->weights[i];
        off += (x - y) * (x - y), size += y * y;
    }
    return sqrt(off / size);
}

#define LAYOUT(...)   ((const char *const[]){__VA_ARGS__, NULL})
#define RESHARD(when) "parallelism.fsdp_reshard_after_forward=" when
#define MASKED        "objective.name=masked", "objective.mask_token=<|mask|>"
#define DIFFUSION     "objective.name=diffusion", "objective.mask_token=<|mask|>"
#define INTERLEAVED   "parallelism.pipeline_parallel_schedule=Interleaved1F1B"
#define LAYERS(n)     "parallelism.pipeline_parallel_layers_per_stage=" #n
#define ROWS(n)       "training.local_batch_size=" #n, MICRO_ROWS(n)
#define MICRO_ROWS(n) "parallelism.pipeline_parallel_microbatch_size=" #n
#define TIED          "model.tie_embeddings=true", "model.n_layers=6"

struct layout_row {
    const char *name;
    int ranks;
    const char *settings[6];
};

/* Compares each layout with one rank that trains the same model. */
static void compare_layouts(const char *title, const struct layout_row *rows, size_t count,
                            const char *const *alone)
{
    char path[256];
    struct layout_run one;
    snprintf(path, sizeof path, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(path, '=') + 1, 60000);
    run_layout(&one, 1, path, alone);
    print_message("%-32s ranks   losses    norms  weights off by\n", title);
    for (size_t i = 0; i < count; i++) {
        const char *settings[16] = {0};
        struct layout_run l;
        int n = 0;
        for (; alone[n]; n++) settings[n] = alone[n];
        for (int k = 0; rows[i].settings[k]; k++) settings[n++] = rows[i].settings[k];
        run_layout(&l, rows[i].ranks, path, settings);
        double loss = max_relative_difference(l.loss, one.loss, STEPS),
               norm = max_relative_difference(l.norm, one.norm, STEPS);
        double weights = distance(&l, &one);
        print_message("%-32s %5d  %.1e  %.1e  %.1e\n", rows[i].name, l.ranks, loss, norm, weights);
        CHECK(loss < 1e-5 && norm < 1e-5 && weights < 1e-5);
        free(l.weights);
    }
    free(one.weights);
}

TEST(every_parallel_layout_trains_the_same_model)
{
    static const struct layout_row layouts[] = {
        {"FSDP 2", 2, {SHARD(2)}},
        {"FSDP 2, never resharded", 2, {SHARD(2), RESHARD("never")}},
        {"FSDP 2, always resharded", 2, {SHARD(2), RESHARD("always")}},
        {"ZeRO-1 2", 2, {SHARD(2), ZERO1}},
        {"FSDP 4", 4, {SHARD(4)}},
        {"ZeRO-1 4", 4, {SHARD(4), ZERO1}},
        {"DDP 2", 2, {COPIES(2), SHARD(1)}},
        {"DDP 4", 4, {COPIES(4), SHARD(1)}},
        {"HSDP 2 x 2", 4, {COPIES(2), SHARD(2)}},
        {"HSDP 2 x 2, ZeRO-1", 4, {COPIES(2), SHARD(2), ZERO1}},
        {"HSDP 2 x 4", 8, {COPIES(2), SHARD(4)}},
        {"FSDP 8", 8, {SHARD(8)}},
        {"TP 2", 2, {TP(2)}},
        {"TP 2, no recomputation", 2, {TP(2), "activation_checkpoint.mode=none"}},
        {"TP 2, full recomputation", 2, {TP(2), "activation_checkpoint.mode=full"}},
        {"FSDP 2 x TP 2", 4, {SHARD(2), TP(2)}},
        {"ZeRO-1 2 x TP 2", 4, {SHARD(2), TP(2), ZERO1}},
        {"DDP 2 x TP 2", 4, {COPIES(2), SHARD(1), TP(2)}},
        {"HSDP 2 x 2 x TP 2", 8, {COPIES(2), SHARD(2), TP(2)}},
        {"TP 4, heads of keys twice", 4, {TP(4)}},
        {"FSDP 2 x TP 4, heads twice", 8, {SHARD(2), TP(4)}},
        {"CP 2", 2, {CP(2)}},
        {"CP 2, no recomputation", 2, {CP(2), "activation_checkpoint.mode=none"}},
        {"CP 2, full recomputation", 2, {CP(2), "activation_checkpoint.mode=full"}},
        {"CP 4", 4, {CP(4)}},
        {"CP 2 x TP 2", 4, {CP(2), TP(2)}},
        {"FSDP 2 x CP 2", 4, {SHARD(2), CP(2)}},
        {"ZeRO-1 2 x CP 2", 4, {SHARD(2), CP(2), ZERO1}},
        {"DDP 2 x CP 2", 4, {COPIES(2), SHARD(1), CP(2)}},
        {"HSDP 2 x 2 x CP 2", 8, {COPIES(2), SHARD(2), CP(2)}},
        {"FSDP 2 x CP 2 x TP 2", 8, {SHARD(2), CP(2), TP(2)}},
        {"PP 2", 2, {PP(2)}},
        {"PP 2, GPipe", 2, {PP(2), "parallelism.pipeline_parallel_schedule=GPipe"}},
        {"PP 4", 4, {PP(4)}},
        {"PP 2 x FSDP 2", 4, {PP(2), SHARD(2)}},
        {"PP 2 x FSDP 2, always resharded", 4, {PP(2), SHARD(2), RESHARD("always")}},
        {"PP 2 x ZeRO-1 2", 4, {PP(2), SHARD(2), ZERO1}},
        {"PP 2 x TP 2", 4, {PP(2), TP(2)}},
        {"PP 2 x DDP 2 x TP 2", 8, {PP(2), COPIES(2), SHARD(1), TP(2)}},
        {"PP 2 x FSDP 2 x TP 2", 8, {PP(2), SHARD(2), TP(2)}},
        {"PP 2 x CP 2", 4, {PP(2), CP(2)}},
        {"PP 2 x CP 2 x TP 2", 8, {PP(2), CP(2), TP(2)}},
        {"PP 2 x FSDP 2 x CP 2", 8, {PP(2), SHARD(2), CP(2)}},
    };
    compare_layouts("layout", layouts, sizeof layouts / sizeof *layouts, LAYOUT(SHARD(1)));
}

/* Every rank orthogonalizes whole matrices, whatever shard of them it has. */
TEST(every_parallel_layout_trains_the_same_model_with_muon)
{
    static const struct layout_row layouts[] = {
        {"FSDP 2", 2, {SHARD(2)}},
        {"ZeRO-1 4", 4, {SHARD(4), ZERO1}},
        {"FSDP 8", 8, {SHARD(8)}},
        {"DDP 2", 2, {COPIES(2), SHARD(1)}},
        {"HSDP 2 x 2", 4, {COPIES(2), SHARD(2)}},
        {"TP 2", 2, {TP(2)}},
        {"TP 4, heads of keys twice", 4, {TP(4)}},
        {"FSDP 2 x TP 4, heads twice", 8, {SHARD(2), TP(4)}},
        {"FSDP 2 x CP 2 x TP 2", 8, {SHARD(2), CP(2), TP(2)}},
        {"PP 4", 4, {PP(4)}},
        {"PP 2 x FSDP 2 x TP 2", 8, {PP(2), SHARD(2), TP(2)}},
    };
    compare_layouts("layout", layouts, sizeof layouts / sizeof *layouts,
                    LAYOUT(SHARD(1), "optimizer.name=Muon"));
}

/* Six blocks, and tied embeddings. */
TEST(every_pipeline_layout_trains_the_same_tied_model)
{
    static const struct layout_row layouts[] = {
        {"PP 2", 2, {PP(2)}},
        {"PP 3, the rest last", 3, {PP(3), "parallelism.pipeline_parallel_remainder=last"}},
        {"PP 2 from block 1", 2, {PP(2), "parallelism.pipeline_parallel_split_points=layers.1"}},
        {"PP 8, embedding and head alone", 8, {PP(8)}},
        {"PP 2, two rows at once", 2, {PP(2), ROWS(2)}},
        {"PP 2, two chunks", 2, {PP(2), INTERLEAVED}},
        {"PP 2, four chunks", 2, {PP(2), INTERLEAVED, LAYERS(2)}},
        {"PP 4, two chunks", 4, {PP(4), INTERLEAVED}},
        {"PP 2 x FSDP 2, two chunks", 4, {PP(2), SHARD(2), INTERLEAVED}},
        {"PP 2 x FSDP 2 always, chunks", 4, {PP(2), SHARD(2), INTERLEAVED, RESHARD("always")}},
        {"PP 2 x TP 2, two chunks", 4, {PP(2), TP(2), INTERLEAVED}},
        {"PP 2 x HSDP 2 x 2, two chunks", 8, {PP(2), COPIES(2), SHARD(2), INTERLEAVED}},
        {"FSDP 2", 2, {SHARD(2)}},
        {"FSDP 2 x TP 2", 4, {SHARD(2), TP(2)}},
    };
    compare_layouts("layout of a tied model", layouts, sizeof layouts / sizeof *layouts,
                    LAYOUT(SHARD(1), TIED));
}

/* Steps of 4, 4, 8, 12 rows, then of 16. */
TEST(every_parallel_layout_trains_the_same_model_in_a_batch_ramp)
{
    static const struct layout_row layouts[] = {
        {"FSDP 2", 2, {SHARD(2)}},
        {"FSDP 4", 4, {SHARD(4)}},
        {"HSDP 2 x 2, ZeRO-1", 4, {COPIES(2), SHARD(2), ZERO1}},
        {"two rows at once", 1, {ROWS(2)}},
        {"FSDP 2 x TP 2", 4, {SHARD(2), TP(2)}},
        {"CP 2", 2, {CP(2)}},
        {"PP 2", 2, {PP(2)}},
        {"PP 2, GPipe", 2, {PP(2), "parallelism.pipeline_parallel_schedule=GPipe"}},
        {"PP 2 x FSDP 2, two chunks", 4, {PP(2), SHARD(2), INTERLEAVED}},
        {"PP 4, two chunks", 4, {PP(4), INTERLEAVED}},
    };
    compare_layouts("layout of a batch ramp", layouts, sizeof layouts / sizeof *layouts,
                    LAYOUT(SHARD(1), "model.n_layers=6", "training.global_batch_size=16",
                           "training.batch_ramp=4,4,20"));
}

/* Layouts in which every rank has other heads or tokens for the weights of norms and biases. */
static const struct layout_row vector_layouts[] = {
    {"no recomputation", 1, {"activation_checkpoint.mode=none"}},
    {"full recomputation", 1, {"activation_checkpoint.mode=full"}},
    {"FSDP 4", 4, {SHARD(4)}},
    {"ZeRO-1 2", 2, {SHARD(2), ZERO1}},
    {"HSDP 2 x 2", 4, {COPIES(2), SHARD(2)}},
    {"TP 2", 2, {TP(2)}},
    {"TP 2, no recomputation", 2, {TP(2), "activation_checkpoint.mode=none"}},
    {"TP 2, full recomputation", 2, {TP(2), "activation_checkpoint.mode=full"}},
    {"TP 4, heads of keys twice", 4, {TP(4)}},
    {"FSDP 2 x TP 4, heads twice", 8, {SHARD(2), TP(4)}},
    {"CP 2", 2, {CP(2)}},
    {"CP 2, full recomputation", 2, {CP(2), "activation_checkpoint.mode=full"}},
    {"FSDP 2 x CP 2 x TP 2", 8, {SHARD(2), CP(2), TP(2)}},
    {"PP 2", 2, {PP(2)}},
    {"PP 2 x FSDP 2 x TP 2", 8, {PP(2), SHARD(2), TP(2)}},
};
enum { VECTOR_LAYOUTS = sizeof vector_layouts / sizeof *vector_layouts };

TEST(every_parallel_layout_trains_the_same_model_with_qk_norm_and_z_loss)
{
    compare_layouts("QK norm and z-loss", vector_layouts, VECTOR_LAYOUTS,
                    LAYOUT(SHARD(1), "model.qk_norm=true", "training.z_loss=0.01"));
}

TEST(every_parallel_layout_trains_the_same_model_with_biases)
{
    compare_layouts("biases", vector_layouts, VECTOR_LAYOUTS,
                    LAYOUT(SHARD(1), "model.attention_bias=all", "model.mlp_bias=true"));
}

/* With a small learning rate: the norms of small sums amplify rounding errors. */
TEST(every_parallel_layout_trains_the_same_model_with_norms_behind)
{
    compare_layouts("norms behind", vector_layouts, VECTOR_LAYOUTS,
                    LAYOUT(SHARD(1), "model.post_norm=true", "optimizer.lr=1e-4"));
}

static const struct layout_row setting_layouts[] = {
    {"no recomputation", 1, {"activation_checkpoint.mode=none"}},
    {"full recomputation", 1, {"activation_checkpoint.mode=full"}},
    {"FSDP 2", 2, {SHARD(2)}},
    {"TP 2", 2, {TP(2)}},
    {"CP 2, full recomputation", 2, {CP(2), "activation_checkpoint.mode=full"}},
    {"PP 2 x FSDP 2 x TP 2", 8, {PP(2), SHARD(2), TP(2)}},
};

TEST(every_parallel_layout_trains_the_same_model_with_multipliers)
{
    compare_layouts("Granite's multipliers", setting_layouts,
                    sizeof setting_layouts / sizeof *setting_layouts,
                    LAYOUT(SHARD(1), "model.embedding_multiplier=3", "model.logits_scaling=1.7",
                           "model.residual_multiplier=0.5", "model.attention_multiplier=0.1"));
}

TEST(every_parallel_layout_trains_the_same_model_with_blocks_without_rope)
{
    compare_layouts("NoPE and yarn", setting_layouts,
                    sizeof setting_layouts / sizeof *setting_layouts,
                    LAYOUT(SHARD(1), "model.no_rope_layer_interval=2", "model.rope_scaling=yarn",
                           "model.rope_factor=4", "model.rope_original_context=16"));
}

TEST(every_parallel_layout_trains_the_same_model_with_rope_of_a_part_of_each_head)
{
    compare_layouts("partial RoPE", setting_layouts,
                    sizeof setting_layouts / sizeof *setting_layouts,
                    LAYOUT(SHARD(1), "model.partial_rotary_factor=0.5", "model.rope_scaling=none"));
}

/* The rows of 16 tokens have the long factors, although a rank of CP 2 holds only 8 of them. */
TEST(every_parallel_layout_trains_the_same_model_with_longrope)
{
    compare_layouts("longrope", setting_layouts, sizeof setting_layouts / sizeof *setting_layouts,
                    LAYOUT(SHARD(1), "model.rope_scaling=longrope", "model.rope_original_context=8",
                           "model.rope_short_factor=[1, 1.1]", "model.rope_long_factor=[1.5, 4]"));
}

TEST(every_parallel_layout_trains_the_same_model_with_a_sliding_window)
{
    static const struct layout_row layouts[] = {
        {"full recomputation", 1, {"activation_checkpoint.mode=full"}},
        {"TP 2", 2, {TP(2)}},
        {"CP 2", 2, {CP(2)}},
        {"CP 4", 4, {CP(4)}},
        {"FSDP 2 x CP 2 x TP 2", 8, {SHARD(2), CP(2), TP(2)}},
        {"PP 2 x CP 2", 4, {PP(2), CP(2)}},
    };
    compare_layouts("sliding window", layouts, sizeof layouts / sizeof *layouts,
                    LAYOUT(SHARD(1), "model.sliding_window=7"));
}

/* Of the 288 tokens of a microbatch the head computes 192. */
TEST(ranks_that_skip_tokens_without_a_label_train_the_same_model)
{
    static const struct layout_row layouts[] = {
        {"DDP 2", 2, {COPIES(2), SHARD(1)}},
        {"TP 2", 2, {TP(2)}},
        {"PP 2 x TP 2", 4, {PP(2), TP(2)}},
    };
    compare_layouts(
        "masked", layouts, sizeof layouts / sizeof *layouts,
        LAYOUT(SHARD(1), MASKED, "training.seq_len=288", "training.global_batch_size=4"));
}

#define ODD         "model.vocab_size=261"
#define MULTIPLE(n) "model.vocab_multiple=" #n

/* 261 tokens, which no degree divides, with and without further padding. */
TEST(padding_of_the_vocabulary_trains_the_same_model)
{
    static const struct layout_row layouts[] = {
        {"TP 2", 2, {TP(2)}},
        {"automatic", 1, {MULTIPLE(0)}},
        {"multiple of 64", 1, {MULTIPLE(64)}},
        {"FSDP 2, multiple of 64", 2, {SHARD(2), MULTIPLE(64)}},
        {"TP 2, multiple of 16", 2, {TP(2), MULTIPLE(16)}},
        {"TP 4, multiple of 128", 4, {TP(4), MULTIPLE(128)}},
        {"FSDP 2 x TP 2", 4, {SHARD(2), TP(2)}},
        {"PP 2 x TP 2, multiple of 16", 4, {PP(2), TP(2), MULTIPLE(16)}},
    };
    size_t count = sizeof layouts / sizeof *layouts;
    compare_layouts("padded vocabulary", layouts, count, LAYOUT(SHARD(1), ODD, MULTIPLE(1)));
    compare_layouts("padded vocabulary, tied", layouts, count,
                    LAYOUT(SHARD(1), ODD, MULTIPLE(1), TIED));
}

/* Every mask, with odd sequence lengths; also compares the validation loss. */
TEST(context_parallel_ranks_train_and_validate_the_same_model)
{
    static const struct {
        const char *name, *settings[3];
    } kinds[] = {
        {"documents", {"model.attn_mask_type=block_causal"}},
        {"packed", {"model.attn_mask_type=block_causal", "data.packing=best_fit"}},
        {"masked", {MASKED}},
        {"masked, documents", {MASKED, "model.attn_mask_type=block_causal"}},
        {"ranks' means, masked", {MASKED, "training.loss_norm=rank_mean"}},
        {"diffusion", {DIFFUSION}},
    };
    static const struct {
        const char *name;
        int ranks;
        const char *settings[4];
    } layouts[] = {
        {"CP 2", 2, {CP(2)}},
        {"CP 4", 4, {CP(4)}},
        {"CP 2 x TP 2", 4, {CP(2), TP(2)}},
        {"PP 2", 2, {PP(2)}},
        {"PP 2 x CP 2", 4, {PP(2), CP(2)}},
    };
    char path[256];
    snprintf(path, sizeof path, "training.dataset_path=%s/corpus.jsonl", test_folder());
    runs_write_corpus(strchr(path, '=') + 1, 60000);
    print_message("context parallelism                   losses    norms  weights  validation\n");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct layout_run one, l;
        const char *settings[12] = {"validation.enable=true", "data.validation_share=0.1"};
        int n = 2;
        for (int i = 0; i < 3 && kinds[k].settings[i]; i++) settings[n++] = kinds[k].settings[i];
        run_layout(&one, 1, path, settings);
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
            memcpy(settings + n, layouts[i].settings, sizeof layouts[i].settings);
            run_layout(&l, layouts[i].ranks, path, settings);
            double loss = max_relative_difference(l.loss, one.loss, STEPS);
            double norm = max_relative_difference(l.norm, one.norm, STEPS),
                   weights = distance(&l, &one);
            double validation = max_relative_difference(&l.validation, &one.validation, 1);
            print_message("%-20s %-15s  %.1e  %.1e  %.1e  %.1e\n", kinds[k].name, layouts[i].name,
                          loss, norm, weights, validation);
            CHECK(loss < 1e-5 && norm < 1e-5 && weights < 1e-5 && validation < 1e-5);
            CHECK(l.validated == one.validated && l.validated > 1000);
            free(l.weights);
        }
        free(one.weights);
    }
}

/* Sums are taken over pairs of neighbors, so they do not depend on the layout. */
TEST(data_parallel_layouts_have_the_same_bits)
{
    static const struct {
        const char *settings[6];
    } layouts[] = {
        {{SHARD(4)}},
        {{SHARD(4), RESHARD("never")}},
        {{SHARD(4), ZERO1}},
        {{COPIES(2), SHARD(2)}},
        {{COPIES(2), SHARD(2), ZERO1}},
        {{COPIES(4), SHARD(1)}},
    };
    char path[256];
    struct layout_run first;
    snprintf(path, sizeof path, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(path, '=') + 1, 60000);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const char *settings[8] = {"training.global_batch_size=4", "training.max_norm=0"};
        struct layout_run l;
        for (int n = 0; layouts[i].settings[n]; n++) settings[n + 2] = layouts[i].settings[n];
        run_layout(&l, 4, path, settings);
        if (!i) {
            first = l;
            continue;
        }
        CHECK(!memcmp(l.loss, first.loss, sizeof l.loss));
        CHECK(!memcmp(l.weights, first.weights, l.elements * sizeof *l.weights));
        free(l.weights);
    }
    free(first.weights);
}

/* bf16 has 8 significant bits, and the last ones depend on the order of sums. */
TEST(every_parallel_layout_has_the_losses_of_one_rank_in_bf16)
{
    static const struct {
        const char *name;
        int ranks;
        const char *settings[6];
    } layouts[] = {
        {"FSDP 2", 2, {SHARD(2)}},
        {"FSDP 2, never resharded", 2, {SHARD(2), RESHARD("never")}},
        {"ZeRO-1 4", 4, {SHARD(4), ZERO1}},
        {"HSDP 2 x 2", 4, {COPIES(2), SHARD(2)}},
        {"TP 2", 2, {TP(2)}},
        {"TP 2, full recomputation", 2, {TP(2), "activation_checkpoint.mode=full"}},
        {"TP 4, heads of keys twice", 4, {TP(4)}},
        {"FSDP 2 x TP 2", 4, {SHARD(2), TP(2)}},
        {"HSDP 2 x 2 x TP 2", 8, {COPIES(2), SHARD(2), TP(2)}},
        {"CP 2", 2, {CP(2)}},
        {"FSDP 2 x CP 2 x TP 2", 8, {SHARD(2), CP(2), TP(2)}},
        {"PP 2 x FSDP 2", 4, {PP(2), SHARD(2)}},
        {"PP 2 x CP 2 x TP 2", 8, {PP(2), CP(2), TP(2)}},
    };
    static const char half[] = "training.mixed_precision_param=bfloat16";
    char path[256];
    struct layout_run one;
    snprintf(path, sizeof path, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(path, '=') + 1, 60000);
    run_layout(&one, 1, path, LAYOUT(SHARD(1), half));
    print_message("layout in bf16                 ranks   losses off by\n");
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const char *settings[8] = {half};
        struct layout_run l;
        memcpy(settings + 1, layouts[i].settings, sizeof layouts[i].settings);
        run_layout(&l, layouts[i].ranks, path, settings);
        double loss = max_relative_difference(l.loss, one.loss, STEPS);
        print_message("%-30s %5d  %.1e\n", layouts[i].name, l.ranks, loss);
        CHECK(loss < 1e-2);
        free(l.weights);
    }
    free(one.weights);
}
