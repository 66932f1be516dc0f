/* test_memory.c -- `plan` predicts the memory of a run, and steps allocate nothing. */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

static double planned_bytes(const char *config, int ranks, const char *settings)
{
    enum { MAX_SETTINGS = 40 };
    char number[16];
    const char *arguments[MAX_SETTINGS + 6] = {"plan", config, "--json", "--ranks", number};
    char *copy = heap_strdup(settings), *save = NULL;
    struct text out = {0};
    struct json *plan;
    int n = 5;
    snprintf(number, sizeof number, "%d", ranks);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        arguments[n++] = word;
    CHECK(test_llamero(&out, NULL, arguments) == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "plan", &plan));
    double total = 0; /* of the rank that needs most */
    for (const struct json *r = json_first(json_get(plan, "ranks")); r; r = json_next(r))
        total = fmax(total, json_number(json_get(r, "total")));
    json_free(plan);
    text_release(&out);
    free(copy);
    return total;
}

#define WIDE "model.dim=512 model.n_heads=8 model.n_kv_heads=4 model.ffn_hidden=1024 "
#define LARGE                                                                                      \
    "model.dim=768 model.n_heads=12 model.n_kv_heads=4 model.ffn_hidden=2048 model.n_layers=3 "
#define FLOAT8  "model.converters=[\"float8\"] float8.recipe_name=delayed "
#define ELASTIC "training.determinism=elastic "
#define MASKED  "objective.name=masked objective.mask_token=<|mask|> "

/* Trains a few steps on `ranks` ranks; false: no launcher is installed. */
static bool check_peak(const char *folder, int ranks, const char *settings)
{
    char *config = file_join(folder, "run.toml"), *dump = file_join(folder, "run");
    struct text all = {0};
    text_addf(&all, "training.steps=2 checkpoint.interval=1 %s", settings);
    double planned = planned_bytes(config, ranks, all.data);
    int code = runs_train_ranks(ranks, config, dump, all.data, NULL);
    if (code >= 0) {
        CHECK(code == 0);
        double measured = runs_metric(dump, "memory_bytes");
        print_message("  planned %8.2f MiB, measured %8.2f MiB (%+.2f%%)  %d  %s\n",
                      planned / (1 << 20), measured / (1 << 20), 100 * (planned / measured - 1),
                      ranks, settings);
        CHECK(fabs(planned / measured - 1) < 0.05);
        CHECK_STATUS(OK, file_remove_tree(dump));
    }
    text_release(&all);
    free(config), free(dump);
    return code >= 0;
}

static const char *new_folder(void)
{
    const char *folder = test_folder();
    char *corpus = file_join(folder, "corpus.txt"), *config = file_join(folder, "run.toml");
    runs_write_corpus(corpus, 400000);
    runs_write_config(config, corpus);
    free(corpus), free(config);
    return folder;
}

/* Not under ASan, whose allocator uses memory of its own, and which makes these runs slow. */
TEST(plan_is_within_five_percent_of_the_measured_peak)
{
    if (TEST_SLOWED) skip();
    static const char *const settings[] = {
        WIDE "training.seq_len=256 training.mixed_precision_param=float32",
        WIDE "model.qk_norm=true training.seq_len=512 activation_checkpoint.mode=none",
        WIDE "model.vocab_size=8000 activation_checkpoint.mode=full",
        WIDE "model.vocab_size=8000 model.tie_embeddings=true",
        WIDE "model.n_layers=6 checkpoint.async_mode=async",
        WIDE "training.local_batch_size=8 training.global_batch_size=8 training.seq_len=256",
        WIDE
        "training.global_batch_size=16 training.seq_len=256 training.local_batch_size=2 " ELASTIC,
        WIDE MASKED "training.seq_len=512",
        WIDE "training.seq_len=512 " FLOAT8,
        LARGE "training.seq_len=256 validation.enable=true data.validation_share=0.2 "
              "validation.steps=2",
        /* Its second stage saves before the last step, too. */
        WIDE "training.seq_len=128 data.stage.0.at_step=1 data.stage.0.seq_len=512 "
             "training.steps=3",
    };
    const char *folder = new_folder();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check_peak(folder, 1, settings[i]);
}

#define RANKED                                                                                     \
    "device.threads=1 training.seq_len=512 training.local_batch_size=1 "                           \
    "training.global_batch_size=2 model.vocab_size=264 model.n_layers=4 " WIDE
#define FSDP   "parallelism.data_parallel_shard_degree=2 training.global_batch_size=4 "
#define DDP    "parallelism.data_parallel_replicate_degree=2 "
#define ZERO1  "parallelism.fsdp_shard_gradients=false "
#define CP     "parallelism.context_parallel_degree=2 "
#define TP     "parallelism.tensor_parallel_degree=2 "
#define PP     "parallelism.pipeline_parallel_degree=2 "
#define CHUNKS "parallelism.pipeline_parallel_schedule=Interleaved1F1B "

/* Not under ASan, which adds to the memory of MPI libraries. */
TEST(plan_is_within_five_percent_of_the_measured_peak_of_ranks)
{
    if (TEST_SLOWED) skip();
    static const struct {
        int ranks;
        const char *settings;
    } layouts[] = {
        {2, RANKED FSDP ZERO1},
        {4, RANKED FSDP DDP},
        {2, RANKED TP},
        {2, RANKED PP CHUNKS "training.global_batch_size=4"},
        {4, RANKED PP TP},
        {4, RANKED PP CP},
        {4, RANKED CP TP},
        {2, RANKED TP FLOAT8},
        {2, RANKED FSDP ELASTIC "training.mixed_precision_param=float32"},
    };
    const char *folder = new_folder();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (!check_peak(folder, layouts[i].ranks, layouts[i].settings)) skip();
}

/* Of a whole run, counted by a preloaded library; oneDNN's allocations are not included. */
struct counts {
    long allocations, faults;
};

static struct counts count_of_steps(const char *config, const char *folder, const char *setting,
                                    int steps)
{
    struct counts c;
    char name[64];
    struct text preload = {0}, count = {0}, all = {0}, err = {0};
    snprintf(name, sizeof name, "steps-%d", steps);
    char *dump = file_join(folder, name);
    text_addf(&preload, "LD_PRELOAD=%s", getenv("LLAMERO_COUNTER"));
    text_addf(&count, "COUNT_ALLOCATIONS=%s.count", dump);
    text_addf(&all, "job.dump_folder=%s", dump);
    char number[64];
    snprintf(number, sizeof number, "training.steps=%d", steps);
    const char *argv[] = {"env",
                          preload.data,
                          count.data,
                          getenv("LLAMERO"),
                          "train",
                          config,
                          all.data,
                          number,
                          setting,
                          "checkpoint.enable=false",
                          "metrics.enable_tensorboard=true",
                          NULL};
    CHECK(test_run(argv, NULL, &err) == 0);
    struct text read = {0};
    CHECK_STATUS(OK, file_read(count.data + strlen("COUNT_ALLOCATIONS="), 4096, &read));
    CHECK(sscanf(read.data, "%ld %*d %ld", &c.allocations, &c.faults) == 2);
    text_release(&preload), text_release(&count), text_release(&all), text_release(&err);
    text_release(&read);
    free(dump);
    return c;
}

/* Reading and writing files touches new pages now and then: fewer than one a step. */
TEST(steps_allocate_nothing_and_touch_no_new_memory)
{
    const char *counter = getenv("LLAMERO_COUNTER");
    CHECK(counter);
    if (!counter[0]) skip(); /* sanitizers replace malloc */
    const char *folder = test_folder();
    char *corpus = file_join(folder, "corpus.jsonl"), *config = file_join(folder, "run.toml");
    runs_write_corpus(corpus, 200000);
    runs_write_config(config, corpus);
    /* Of as many digits: a text that just fits its memory would need more with another one. */
    enum { FEW = 100, MANY = 280 };
    static const char *const settings[] = {"training.determinism=layout",
                                           "training.determinism=elastic"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct counts few = count_of_steps(config, folder, settings[i], FEW);
        struct counts many = count_of_steps(config, folder, settings[i], MANY);
        print_message("  %s: 100 steps: %ld allocations, %ld page faults; 280 steps: %ld, %ld\n",
                      settings[i], few.allocations, few.faults, many.allocations, many.faults);
        CHECK(few.allocations > 0 && few.allocations == many.allocations);
        CHECK(few.faults > 0 && many.faults - few.faults < MANY - FEW);
    }
    free(corpus), free(config);
}
