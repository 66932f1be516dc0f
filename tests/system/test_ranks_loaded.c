/* test_ranks_loaded.c -- eval and generate over parallel layouts. */
// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "system/layouts.h"
#include "system/runs.h"

#include "infer/loaded_model.h"
#include "model/decode.h"
#include "train/evaluator.h"

/* Evaluates the training text and generates tokens; ranks are threads. */
enum { TOKENS = 24, SETTINGS = 8, CORPUS = TEST_SLOWED ? 6000 : 12000 };

struct use {
    const char *folder, *corpus, *const *settings;
    int ranks;
    double loss_sum;
    int64_t tokens, correct;
    int32_t ids[TOKENS];
    size_t most_held; /* elements of the model on the rank that holds most */
    size_t elements;  /* of the whole model */
};

struct user {
    struct loaded_model loaded;
    struct evaluator evaluator;
    struct kv_cache cache;
    struct arena run;
    float logits[264];
};

static enum status size_step(void *context)
{
    struct user *u = context;
    TRY(evaluator_size(&u->evaluator, &u->loaded.step));
    TRY(decode_size(&u->loaded.model, &u->cache, 1, &u->loaded.step));
    return STATUS_OK;
}

static enum status alloc_run(struct user *u)
{
    TRY(decode_init_cache(&u->cache, &u->loaded.model, 1, TOKENS, &u->run));
    evaluator_alloc(&u->evaluator, 3, 32, &u->run);
    return STATUS_OK;
}

static enum status open_user(struct user *u, const struct comm *world, const struct use *use)
{
    /* The reference loops: TSan cannot see the synchronization inside libraries. */
    const char *settings[SETTINGS] = {"device.threads=1", "device.cpu=reference"};
    int n = 2;
    for (int i = 0; use->settings[i]; i++) settings[n++] = use->settings[i];
    u->loaded.machine.world = *world;
    struct loaded_model_options o = {.path = use->folder,
                                     .tokenizer = "",
                                     .settings = settings,
                                     .num_settings = n,
                                     .max_tokens = 32};
    TRY(loaded_model_open(&u->loaded, &o));
    const struct comm *groups = u->loaded.machine.groups.of;
    u->evaluator = (struct evaluator){.pipeline = loaded_model_pipeline(&u->loaded),
                                      .readers = &groups[GROUP_data],
                                      .contexts = &groups[GROUP_cp],
                                      .peers = &groups[GROUP_peers],
                                      .causal = true,
                                      .documents = true};
    TRY(alloc_run(u));
    TRY(loaded_model_alloc_step(&u->loaded, size_step, u));
    evaluator_release(&u->evaluator);
    TRY(arena_init(&u->run, u->run.used, NULL));
    TRY(alloc_run(u));
    return STATUS_OK;
}

static enum status evaluate(struct user *u, const char *corpus, struct evaluation *v)
{
    struct source_config source = {.path = corpus, .column = "text", .weight = 1};
    struct data_config data = u->loaded.config.data;
    data.sources = &source, data.num_sources = 1, data.validation_share = 0;
    struct loader_options o = {.data = &data,
                               .objective = &u->loaded.config.objective,
                               .tokenizer = u->loaded.tokenizer,
                               .vocab_size = u->loaded.shape.V,
                               .seq_len = 32,
                               .reader = u->evaluator.readers->rank,
                               .num_readers = u->evaluator.readers->size,
                               .once = true};
    struct loader *loader = NULL;
    if (!u->evaluator.peers->rank) TRY(loader_open(&loader, &o));
    TRY(evaluator_run(&u->evaluator, loader, -1, &u->loaded.step, v));
    loader_close(loader);
    return STATUS_OK;
}

/* Greedy decoding, on each rank by itself. */
static enum status generate(struct user *u, int32_t *ids)
{
    int32_t id = 't';
    for (int n = 0; n < TOKENS; n++) {
        struct decode_io io = {&(struct decode_row){0, 1, &id}, 1, u->logits};
        TRY(decode_next(&u->loaded.model, &u->cache, &io, &u->loaded.step));
        id = 0;
        for (int v = 1; v < u->loaded.shape.V; v++)
            if (u->logits[v] > u->logits[id]) id = v;
        ids[n] = id;
    }
    return STATUS_OK;
}

static enum status use_rank(const struct comm *world, void *context)
{
    struct use *use = context;
    struct user u = {0};
    struct evaluation v;
    int32_t ids[TOKENS];
    TRY(open_user(&u, world, use));
    TRY(evaluate(&u, use->corpus, &v));
    TRY(generate(&u, ids));
    double held = (double)fsdp_shard_elements(&u.loaded.fsdp);
    for (int n = 0; n < TOKENS; n++) {
        double most = ids[n];
        TRY(comm_all_reduce(world, REDUCE_MAX, &most, 1));
        RANK_CHECK(ids[n] == (int32_t)most); /* the same on every rank */
    }
    TRY(comm_all_reduce(world, REDUCE_MAX, &held, 1));
    if (!world->rank) {
        use->loss_sum = v.loss_sum, use->tokens = v.tokens, use->correct = v.correct;
        memcpy(use->ids, ids, sizeof ids);
        use->most_held = (size_t)held;
        struct layout whole;
        layout_init(&whole, &u.loaded.shape, 1);
        use->elements = whole.elements;
        layout_release(&whole);
    }
    u.loaded.machine.world = (struct comm){0}; /* belongs to ranks_run */
    evaluator_release(&u.evaluator);
    loaded_model_close(&u.loaded, STATUS_OK);
    arena_release(&u.run);
    return STATUS_OK;
}

/* Trains 60 steps on one rank; returns the run's folder, which the caller frees. */
static char *train_model(const char *settings)
{
    const char *folder = test_folder();
    char *corpus = file_join(folder, "corpus.txt"), *config = file_join(folder, "run.toml");
    char *dump = file_join(folder, "out");
    struct text all = {0};
    text_addf(&all,
              "device.threads=1 model.vocab_size=264 training.steps=60 optimizer.lr=1e-2 "
              "%s",
              settings);
    runs_write_corpus(corpus, CORPUS);
    runs_write_config(config, corpus);
    CHECK(runs_train(config, dump, all.data, NULL) == 0);
    text_release(&all);
    free(corpus), free(config);
    return dump;
}

static const struct layout_row {
    const char *name;
    int ranks, parts; /* that the weights are split into */
    const char *settings[SETTINGS];
} layouts[] = {
    {"FSDP 2", 2, 2, {SHARD(2)}},
    {"FSDP 4, of any number of ranks", 4, 4, {NULL}},
    {"FSDP 2, never resharded", 2, 2, {"parallelism.fsdp_reshard_after_forward=never"}},
    {"HSDP 2 x 2", 4, 2, {COPIES(2), SHARD(2)}},
    {"TP 2", 2, 2, {TP(2)}},
    {"TP 4, heads of keys twice", 4, 4, {TP(4)}},
    {"FSDP 2 x TP 2", 4, 4, {SHARD(2), TP(2)}},
    {"PP 2 x TP 2", 4, 4, {"parallelism.pipeline_parallel_degree=2", TP(2)}},
    {"CP 2 x FSDP 2", 4, 4, {"parallelism.context_parallel_degree=2", SHARD(2)}},
};

static void compare_layouts(const char *run, double tolerance)
{
    char *corpus = file_join(run, "../corpus.txt");
    static const char *const none[] = {NULL};
    struct use one = {run, corpus, none, 1, .tokens = 0};
    CHECK_STATUS(OK, ranks_run(1, use_rank, &one));
    double loss = one.loss_sum / (double)one.tokens;
    CHECK(one.tokens > CORPUS * 5 / 6 && loss < 5);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const struct layout_row *l = &layouts[i];
        struct use u = {run, corpus, l->settings, l->ranks, .tokens = 0};
        CHECK_STATUS(OK, ranks_run(l->ranks, use_rank, &u));
        double off = fabs(u.loss_sum / one.loss_sum - 1);
        int same = 0;
        while (same < TOKENS && u.ids[same] == one.ids[same]) same++;
        print_message("%-32s loss off by %.1e, %d of %d tokens, %zu of %zu weights\n", l->name, off,
                      same, TOKENS, u.most_held, u.elements);
        CHECK(u.tokens == one.tokens && off < tolerance);
        CHECK(tolerance > 1e-5 || same == TOKENS);
        CHECK(u.most_held < u.elements / (size_t)l->parts + u.elements / 20);
    }
    free(corpus);
}

TEST(every_parallel_layout_evaluates_and_generates_as_one_rank)
{
    char *run = train_model("training.mixed_precision_param=float32");
    compare_layouts(run, 1e-6);
    free(run);
}

TEST(every_parallel_layout_evaluates_and_generates_as_one_rank_with_qk_norm)
{
    char *run = train_model("training.mixed_precision_param=float32 model.qk_norm=true");
    compare_layouts(run, 1e-6);
    free(run);
}

TEST(every_parallel_layout_evaluates_and_generates_as_one_rank_with_norms_behind)
{
    char *run = train_model("training.mixed_precision_param=float32 model.post_norm=true");
    compare_layouts(run, 1e-6);
    free(run);
}

TEST(every_parallel_layout_evaluates_and_generates_as_one_rank_with_biases)
{
    char *run = train_model("training.mixed_precision_param=float32 model.attention_bias=all "
                            "model.mlp_bias=true optimizer.lr=1e-2");
    compare_layouts(run, 1e-6);
    free(run);
}

TEST(every_parallel_layout_evaluates_and_generates_as_one_rank_with_a_sliding_window)
{
    char *run = train_model("training.mixed_precision_param=float32 model.sliding_window=5");
    compare_layouts(run, 1e-6);
    free(run);
}

TEST(every_parallel_layout_evaluates_and_generates_a_tied_model_in_bf16)
{
    char *run = train_model("model.tie_embeddings=true");
    compare_layouts(run, 1e-2);
    free(run);
}
