// SPDX-License-Identifier: Apache-2.0
#include "comm/launched.h"
#include "system/runs.h"

/* Runs under a launcher, as users start them; parallel layouts are tested in test_ranks.c. */
static const char base[] =
    "model.vocab_size=264 training.local_batch_size=1 training.global_batch_size=4 "
    "training.steps=12 lr_scheduler.total_steps=12 metrics.log_freq=1 checkpoint.enable=true "
    "validation.enable=true validation.freq=12 validation.steps=-1 data.validation_share=0.1 "
    "validation.local_batch_size=3 checkpoint.interval=6 device.threads=1 "
    "training.mixed_precision_param=float32 ";

static char *settings_of(const char *more)
{
    struct text t = {0};
    text_addf(&t, "%s%s", base, more);
    char *settings = heap_string(t.data, t.len);
    text_release(&t);
    return settings;
}

static int train(int ranks, const char *folder, const char *dump, const char *more,
                 struct text *err)
{
    char *settings = settings_of(more);
    int code = runs_train_ranks(ranks, test_path(folder, "run.toml"), test_path(folder, dump),
                                settings, err);
    free(settings);
    if (code < 0) skip();
    return code;
}

static const char *new_folder(void)
{
    const char *folder = test_folder();
    runs_write_corpus(test_path(folder, "corpus.txt"), 60000);
    runs_write_config(test_path(folder, "run.toml"), test_path(folder, "corpus.txt"));
    return folder;
}

TEST(launched_ranks_train_as_one_rank_and_resume_on_another_layout)
{
    const char *folder = new_folder();
    CHECK(train(1, folder, "one", "", NULL) == 0);
    static const char *const axes[] = {"tensor", "pipeline", "context"};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i += TEST_SLOWED ? 3 : 1) {
        char layout[128];
        const char *one = test_path(folder, "one"), *dump = test_path(folder, axes[i]);
        snprintf(layout, sizeof layout, "parallelism.%s_parallel_degree=2 training.steps=6",
                 axes[i]);
        CHECK(train(4, folder, axes[i], layout, NULL) == 0);
        CHECK(train(2, folder, axes[i], "", NULL) == 0); /* resumes from their step 6 */
        CHECK_NEAR(runs_metric(dump, "loss"), runs_metric(one, "loss"), 1e-5);
        CHECK_NEAR(runs_metric(dump, "validation_loss"), runs_metric(one, "validation_loss"), 1e-5);
        CHECK(runs_metric(dump, "tokens_seen") == runs_metric(one, "tokens_seen"));
    }
}

TEST(an_invalid_layout_is_reported_once_for_all_ranks)
{
    struct text err = {0};
    const char *folder = new_folder(), *said;
    CHECK(train(3, folder, "three", "parallelism.tensor_parallel_degree=3", &err) == 78);
    said = strstr(err.data, "tensor_parallel_degree = 3");
    CHECK(said && !strstr(said + 1, "tensor_parallel_degree = 3"));
    CHECK(strstr(err.data, "; try "));
    text_release(&err);
}

TEST(a_missing_file_is_reported_once_for_all_ranks)
{
    struct text err = {0};
    const char *folder = new_folder(), *said;
    CHECK(train(2, folder, "two", "data.tokenizer=/nowhere.model", &err) == 66);
    said = strstr(err.data, "/nowhere.model: no such file");
    CHECK(said && !strstr(said + 1, "/nowhere.model: no such file"));
    text_release(&err);
}

/* Runs `llamero ...` on `ranks` ranks; the arguments end with NULL. */
static int run_on(int ranks, struct text *out, struct text *err, const char *const *arguments)
{
    const char *program = getenv("LLAMERO"), *words[16] = {program ? program : "build/llamero"};
    for (int n = 1; *arguments; n++) words[n] = *arguments++;
    int code = ranks == 1 ? test_run(words, out, err) : launched_command(ranks, words, out, err);
    if (code < 0) skip();
    return code;
}
#define ON(ranks, out, err, ...) run_on(ranks, out, err, (const char *const[]){__VA_ARGS__, NULL})

/* Parses the only JSON object in the output. */
static struct json *printed(const struct text *out)
{
    struct json *v;
    CHECK(out->len && strchr(out->data, '\n') == out->data + out->len - 1);
    CHECK_STATUS(OK, json_parse(out->data, out->len, "stdout", &v));
    return v;
}

TEST(launched_ranks_evaluate_and_generate_as_one_rank)
{
    static const struct {
        int ranks;
        const char *setting;
    } layouts[] = {
        {1, "device.threads=1"},
        {2, "parallelism.tensor_parallel_degree=2"},
        {3, "device.threads=1"}, /* ranks read different numbers of rows */
    };
    size_t num_layouts = TEST_SLOWED ? 2 : 3;
    const char *folder = new_folder(), *run = test_path(folder, "out"), *corpus;
    char *ids = NULL;
    corpus = test_path(folder, "corpus.txt");
    double loss = 0, tokens = 0;
    CHECK(train(1, folder, "out", "parallelism.data_parallel_shard_degree=1", NULL) == 0);
    for (size_t i = 0; i < num_layouts; i++) {
        struct text out = {0}, part = {0}, words = {0};
        const char *setting = layouts[i].setting;
        int ranks = layouts[i].ranks;
        CHECK(ON(ranks, &out, NULL, "eval", run, corpus, "--json", "device.threads=1", setting) ==
              0);
        struct json *v = printed(&out);
        if (!i)
            loss = json_number(json_get(v, "loss")), tokens = json_number(json_get(v, "tokens"));
        CHECK_NEAR(json_number(json_get(v, "loss")), loss, 1e-6);
        CHECK(json_number(json_get(v, "tokens")) == tokens);
        json_free(v);
        CHECK(ON(ranks, &part, NULL, "eval", run, corpus, "--json", "--batches", "2",
                 "--batch-size", "5", "device.threads=1", setting) == 0);
        v = printed(&part);
        CHECK(json_number(json_get(v, "tokens")) == 2 * 5 * 32);
        json_free(v);
        CHECK(ON(ranks, &words, NULL, "generate", run, "--prompt", "the ", "--seed", "7", "--json",
                 "--max-tokens", "12", "device.threads=1", setting) == 0);
        json_free(printed(&words));
        *strstr(words.data, "\"prompt_tokens\"") = 0; /* timings differ */
        if (!i) ids = heap_strdup(words.data);
        CHECK(!strcmp(words.data, ids));
        text_release(&out), text_release(&part), text_release(&words);
    }
    free(ids);
}

TEST(errors_of_eval_and_generate_are_reported_once_for_all_ranks)
{
    const char *folder = new_folder(), *run = test_path(folder, "out");
    CHECK(train(1, folder, "out", "", NULL) == 0);
    static const struct {
        const char *arguments[5];
        int code;
        const char *said;
    } cases[] = {
        {{"eval", "/nowhere", "x.txt"}, 66, "/nowhere: no such folder"},
        {{"eval", NULL, "/nowhere.txt"}, 66, "/nowhere.txt: no such file"},
        {{"generate", NULL, "--tokenizer", "/none.model"}, 66, "/none.model"},
        {{"generate", NULL, "parallelism.tensor_parallel_degree=3"}, 78, "a multiple of 3, got 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += TEST_SLOWED ? 3 : 1) {
        struct text err = {0};
        const char *words[6] = {0}, *said;
        memcpy(words, cases[i].arguments, sizeof cases[i].arguments);
        if (!words[1]) words[1] = run;
        CHECK(run_on(2, NULL, &err, words) == cases[i].code);
        said = strstr(err.data, cases[i].said);
        CHECK(said && !strstr(said + 1, cases[i].said));
        text_release(&err);
    }
}

TEST(a_launcher_of_another_mpi_library_is_reported_once)
{
    struct text err = {0};
    const char *own = getenv("LLAMERO_MPIRUN"), *said;
    bool is_mpich = own && strstr(own, "mpich");
    char *before = own ? heap_strdup(own) : NULL;
    setenv("LLAMERO_MPIRUN", is_mpich ? "mpirun.openmpi" : "mpirun.mpich", 1);
    const char *program = getenv("LLAMERO");
    int code = launched_command(
        2, (const char *const[]){program ? program : "build/llamero", "eval", "a", "b", NULL}, NULL,
        &err);
    if (before)
        setenv("LLAMERO_MPIRUN", before, 1);
    else
        unsetenv("LLAMERO_MPIRUN");
    free(before);
    if (code < 0) skip();
    CHECK(code == 78);
    said = strstr(err.data, "cannot join: use ");
    CHECK(said && !strstr(said + 1, "cannot join"));
    text_release(&err);
}

/* Microseconds that two spans overlap. */
static double overlap_us(const struct json *a, const struct json *b)
{
    double a_begin = json_number(json_get(a, "ts")), b_begin = json_number(json_get(b, "ts"));
    double a_end = a_begin + json_number(json_get(a, "dur"));
    double b_end = b_begin + json_number(json_get(b, "dur"));
    return fmin(a_end, b_end) - fmax(a_begin, b_begin);
}

/* Transfers of that name that overlap an operation whose name contains `operation`. */
static int count_overlapped(const struct json *events, const char *transfer, const char *operation)
{
    int count = 0;
    for (const struct json *t = json_first(events); t; t = json_next(t)) {
        bool found = false;
        if (strcmp(json_string(json_get(t, "name")), transfer) != 0) continue;
        if (!(json_number(json_get(t, "tid")) > 0)) continue;
        for (const struct json *o = json_first(events); o && !found; o = json_next(o))
            found = strstr(json_string(json_get(o, "name")), operation) && overlap_us(t, o) > 0;
        count += found;
    }
    return count;
}

TEST(a_trace_shows_all_gathers_and_reduce_scatters_overlapping_computation)
{
    if (TEST_SLOWED) skip(); /* about times */
    const char *folder = new_folder();
    struct json *trace;
    CHECK(train(2, folder, "out",
                "training.steps=4 profiling.enable_profiling=true profiling.profile_freq=2 "
                "model.n_layers=6 training.seq_len=64 checkpoint.enable=false "
                "validation.enable=false",
                NULL) == 0);
    for (int rank = 0; rank < 2; rank++) {
        struct text path = {0};
        text_addf(&path, "%s/out/profile_traces/iteration_4/rank%d_trace.json", folder, rank);
        CHECK_STATUS(OK, json_read(path.data, 1 << 26, &trace));
        const struct json *events = json_get(trace, "traceEvents");
        CHECK(count_overlapped(events, "all_gather", "_forward") > 0);
        CHECK(count_overlapped(events, "reduce_scatter", "_backward") > 0);
        json_free(trace);
        text_release(&path);
    }
}
