// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include <sys/resource.h>

struct place {
    char *corpus, *config, *dump;
};

static struct place place_make(void)
{
    const char *folder = test_folder();
    struct place p = {file_join(folder, "corpus.txt"), file_join(folder, "run.toml"),
                      file_join(folder, "out")};
    runs_write_corpus(p.corpus, 60000);
    runs_write_config(p.config, p.corpus);
    return p;
}

static void place_release(struct place *p) { free(p->corpus), free(p->config), free(p->dump); }

TEST(train_writes_the_documented_files)
{
    static const char *const files[] = {"config.toml",
                                        "metrics.jsonl",
                                        "log.txt",
                                        "tb",
                                        "checkpoint/step-10/config.json",
                                        "checkpoint/step-10/model.safetensors.index.json",
                                        "checkpoint/step-10/state.json",
                                        "checkpoint/step-10/manifest.json"};
    struct place p = place_make();
    struct text err = {0};
    CHECK(runs_train(p.config, p.dump, "training.steps=10 metrics.enable_tensorboard=true", &err) ==
          0);
    CHECK(strstr(err.data, "step:  1  loss: ") && strstr(err.data, "  eta: "));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = file_join(p.dump, files[i]);
        if (!file_exists(path)) fail_msg("%s does not exist", path);
        free(path);
    }
    CHECK(runs_metric(p.dump, "step") == 10);
    text_release(&err);
    place_release(&p);
}

/* The environment of ranks that cannot find each other. */
TEST(one_rank_prints_the_configuration)
{
    struct place p = place_make();
    struct text err[2] = {0};
    int code[2];
    setenv("LLAMERO_RANKS", "2", 1);
    for (int rank = 0; rank < 2; rank++) {
        setenv("LLAMERO_RANK", rank ? "1" : "0", 1);
        code[rank] = LLAMERO(NULL, &err[rank], "train", p.config, "job.print_config=true");
    }
    unsetenv("LLAMERO_RANKS"), unsetenv("LLAMERO_RANK");
    for (int rank = 0; rank < 2; rank++) {
        CHECK(code[rank] != 0 && strstr(err[rank].data, "this process is not a rank"));
        CHECK((strstr(err[rank].data, "[training]") != NULL) == (rank == 0));
        text_release(&err[rank]);
    }
    place_release(&p);
}

TEST(train_rejects_invalid_runs_with_the_right_exit_code)
{
    static const struct {
        const char *settings;
        int code;
        const char *message;
    } cases[] = {
        {"training.step=3", 78, "training.steps"},
        {"data.tokenizer=/nowhere/tokenizer.model", 66, "/nowhere"},
        {"model.n_kv_heads=3", 78, "n_kv_heads"},
        {"optimizer.lr=1e30 training.max_norm=0 lr_scheduler.warmup_steps=0", 78, "optimizer.lr"},
        {"parallelism.tensor_parallel_degree=2", 78, "tensor_parallel_degree"},
        {"checkpoint.initial_load_path=/nowhere", 66, "/nowhere"},
    };
    struct place p = place_make();
    struct text err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int code = runs_train(p.config, p.dump, cases[i].settings, &err);
        if (code != cases[i].code || !strstr(err.data, cases[i].message))
            fail_msg("%s: exit code %d, and: %s", cases[i].settings, code, err.data);
    }
    text_release(&err);
    place_release(&p);
}

TEST(train_exits_with_80_when_the_loss_is_not_finite)
{
    struct place p = place_make();
    struct text err = {0};
    const char *wild = "optimizer.lr=1000 training.max_norm=0 lr_scheduler.warmup_steps=0 "
                       "optimizer.eps=0 optimizer.weight_decay=1000 training.steps=200";
    CHECK(runs_train(p.config, p.dump, wild, &err) == 80);
    CHECK(strstr(err.data, "gradient norm"));
    text_release(&err);
    place_release(&p);
}

/* The run, the folder of its checkpoints, or one of them, as in eval and generate. */
TEST(train_starts_a_new_run_from_the_weights_of_another)
{
    static const char *const paths[] = {"/checkpoint/step-40", "/checkpoint", ""};
    struct place p = place_make();
    struct text settings = {0}, err = {0};
    CHECK(runs_train(p.config, p.dump, "training.steps=40", NULL) == 0);
    double before = runs_metric(p.dump, "loss");
    char *second = file_join(p.dump, "second");
    for (int i = 0; i < 3; i++) {
        text_release(&settings);
        text_addf(&settings, "training.steps=1 checkpoint.initial_load_path=%s%s", p.dump,
                  paths[i]);
        CHECK(runs_train(p.config, second, settings.data, &err) == 0);
        CHECK(strstr(err.data, "starting from the weights of"));
        CHECK(strstr(err.data, "checkpoint/step-40"));
        CHECK(runs_metric(second, "loss") < before + 0.7);
        CHECK(runs_metric(second, "tokens_seen") == 4 * 32);
        CHECK_STATUS(OK, file_remove_tree(second));
    }
    text_release(&settings), text_release(&err);
    free(second);
    place_release(&p);
}

TEST(a_profiled_run_leaves_a_trace_of_every_nth_step)
{
    struct place p = place_make();
    CHECK(runs_train(p.config, p.dump,
                     "training.steps=5 profiling.enable_profiling=true profiling.profile_freq=2",
                     NULL) == 0);
    char *path = file_join(p.dump, "profile_traces/iteration_4/rank0_trace.json");
    char *none = file_join(p.dump, "profile_traces/iteration_3");
    struct json *root;
    CHECK_STATUS(OK, json_read(path, 16 << 20, &root));
    int data = 0, attention = 0;
    const struct json *events = json_get(root, "traceEvents");
    for (const struct json *e = json_first(events); e; e = json_next(e)) {
        const char *name = json_string(json_get(e, "name"));
        data += !strcmp(name, "data");
        attention += !strcmp(name, "attention_backward");
    }
    CHECK(data == 1 && attention >= 2);
    CHECK(!file_exists(none));
    json_free(root);
    free(path), free(none);
    place_release(&p);
}

TEST(train_warns_of_more_threads_than_cores_and_of_idle_settings)
{
    struct place p = place_make();
    struct text err = {0};
    CHECK(runs_train(p.config, p.dump, "training.steps=2 device.threads=100 validation.freq=3",
                     &err) == 0);
    CHECK(strstr(err.data, "device.threads = 100: more than this rank's "));
    CHECK(strstr(err.data, "warning: validation.freq = 3 has no effect: requires "));
    text_release(&err);
    place_release(&p);
}

TEST(missing_inputs_are_reported_with_their_keys)
{
    static const struct {
        const char *settings, *message;
    } cases[] = {
        {"data.source.1.path=/nowhere.txt", "data.source.1.path: /nowhere.txt: no such file"},
        {"data.tokenizer=/nowhere", "data.tokenizer: /nowhere: no such file"},
        {"checkpoint.initial_load_path=/nowhere",
         "checkpoint.initial_load_path = \"/nowhere\": /nowhere: no such folder"},
    };
    struct place p = place_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text err = {0};
        int code = runs_train(p.config, p.dump, cases[i].settings, &err);
        if (code != 66 || !strstr(err.data, cases[i].message)) fail_msg("%d: %s", code, err.data);
        text_release(&err);
    }
    place_release(&p);
}

TEST(a_load_only_run_that_goes_back_keeps_the_metrics)
{
    struct place p = place_make();
    struct text err = {0}, before = {0}, after = {0};
    char *metrics = file_join(p.dump, "metrics.jsonl");
    char *aside = file_join(p.dump, "metrics.load_only.jsonl");
    CHECK(runs_train(p.config, p.dump, "training.steps=6 checkpoint.interval=2", &err) == 0);
    CHECK_STATUS(OK, file_read(metrics, 1 << 20, &before));
    CHECK(runs_train(p.config, p.dump,
                     "training.steps=4 checkpoint.interval=2 checkpoint.load_only=true "
                     "checkpoint.load_step=2",
                     &err) == 0);
    CHECK_STATUS(OK, file_read(metrics, 1 << 20, &after));
    CHECK(!strcmp(before.data, after.data) && file_exists(aside));
    text_release(&err), text_release(&before), text_release(&after);
    free(metrics), free(aside);
    place_release(&p);
}

TEST(a_file_beyond_the_size_limit_is_reported_with_its_name)
{
    struct place p = place_make();
    struct rlimit before, limit;
    struct text err = {0};
    char *prefix = file_join(test_folder(), "tokens");
    CHECK(!getrlimit(RLIMIT_FSIZE, &before));
    limit = (struct rlimit){4096, before.rlim_max};
    CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
    int code = LLAMERO(NULL, &err, "prepare", "--tokenizer", "bytes", "--output", prefix, p.corpus);
    CHECK(!setrlimit(RLIMIT_FSIZE, &before));
    if (code != 74 || !strstr(err.data, "File too large")) fail_msg("%d: %s", code, err.data);
    text_release(&err);
    free(prefix);
    place_release(&p);
}
