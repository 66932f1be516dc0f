// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "app/preflight.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status fly(struct preflight *p, const char *setting, int ranks)
{
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.jsonl");
    const char *path = test_path(folder, "run.toml");
    struct config c;
    runs_write_corpus(corpus, 300);
    runs_write_config(path, corpus);
    CHECK_STATUS(OK, config_load(&c, path, &setting, 1));
    enum status st = preflight(p, &c, &(struct preflight_options){.num_ranks = ranks});
    preflight_release(p);
    config_release(&c);
    return st;
}

TEST(preflight_resolves_the_mesh_and_the_model)
{
    struct preflight p;
    CHECK_STATUS(OK, fly(&p, "model.dim=64", 2));
    CHECK(p.mesh.degree[AXIS_dp_shard] == 2 && p.shape.D == 64 && p.shape.V == 259);
}

TEST(preflight_finds_conflicts_of_ranks_model_and_data)
{
    struct preflight p;
    CHECK_STATUS(CONFIG, fly(&p, "parallelism.tensor_parallel_degree=3", 2));
    CHECK_MESSAGE("a multiple of 3, got 2");
    CHECK_STATUS(OK, fly(&p, "parallelism.tensor_parallel_degree=2", 2)); /* 259 tokens */
    CHECK_STATUS(OK, fly(&p, "data.streams=3", 2));
    CHECK_STATUS(MISSING, fly(&p, "data.tokenizer=/nowhere.model", 1));
}

TEST(preflight_lists_problems_that_do_not_depend_on_each_other)
{
    struct text out = {0}, err = {0};
    const char *folder = test_folder(), *path = test_path(folder, "run.toml");
    struct json *v;
    runs_write_config(path, test_path(folder, "missing.txt"));
    CHECK(LLAMERO(&out, &err, "check", path, "--json", "model.n_heads=5", "data.tokenizer=nowhere",
                  "job.dump_folder=/proc/x") == 66);
    CHECK(strstr(err.data, "nowhere: no such file") && strstr(err.data, "missing.txt: no such"));
    CHECK(strstr(err.data, "cannot create files in /proc"));
    CHECK_STATUS(OK, json_parse(out.data, out.len, "check", &v));
    CHECK(json_count(json_get(v, "problems")) == 3);
    CHECK(strstr(json_string(json_get(v, "message")), "nowhere"));
    json_free(v);
    text_release(&out), text_release(&err);
}

/* The lines of errors. */
static void list_errors(const char *log, struct text *errors)
{
    text_clear(errors);
    for (const char *line = log; line && *line;) {
        const char *end = strchr(line, '\n');
        size_t len = end ? (size_t)(end - line) : strlen(line);
        if (!strncmp(line, "error: ", 7)) {
            text_add(errors, line, len);
            text_adds(errors, "\n");
        }
        line = end ? end + 1 : NULL;
    }
}

/* The files that broken configurations name, in the current folder. */
static void write_files(void)
{
    static const struct {
        const char *name, *content;
    } files[] = {
        {"open.jsonl", "{\"text\": \"ab"},
        {"key.jsonl", "{\"other\": \"a\"}\n"},
        {"array.jsonl", "[1, 2]\n"},
        {"latin1.txt", "\xff\xfe a"},
        {"empty.txt", ""},
        {"empty.jsonl", ""},
        {"three.txt", "abc"},
        {"ids.bin", "xx"},
        {"rows.parquet", "PAR1xxxxPAR1"},
        {"rows.arrow", "ARROW1"},
        {"counts.npy", "\x93NUMPY"},
        {"lines.jsonl.gz", "junk"},
        {"lines.jsonl.zst", "junk"},
        {"other.pdf", "x"},
        {"tokenizer.json", "{}"},
        {"tokenizer.txt", "words of a text"},
        {"task.jsonl", "{}\n"},
        {"a_file", "x"},
        {"blocked_tb/tb", "x"},
        {"blocked_log/log.txt/x", "x"},
        {"blocked_save/checkpoint", "x"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *folder = heap_strdup(files[i].name);
        char *slash = strrchr(folder, '/');
        if (slash) *slash = 0;
        if (slash) CHECK_STATUS(OK, file_make_dirs(folder));
        free(folder);
        CHECK_STATUS(OK, file_write(files[i].name, files[i].content, strlen(files[i].content)));
    }
    CHECK_STATUS(OK, file_make_dirs("folder"));
}

#define SOURCE(path) "data.source.0.path=" path
static const struct {
    int code;
    const char *settings;
} broken[] = {
    {66, SOURCE("nowhere.jsonl")},
    {66, SOURCE("*.nothing")},
    {65, SOURCE("open.jsonl")},
    {65, SOURCE("key.jsonl")},
    {65, SOURCE("array.jsonl")},
    {65, SOURCE("latin1.txt")},
    {65, SOURCE("empty.txt")},
    {65, SOURCE("empty.jsonl")},
    {65, SOURCE("ids.bin")},
    {65, SOURCE("rows.parquet")},
    {65, SOURCE("rows.arrow")},
    {65, SOURCE("counts.npy")},
    {65, SOURCE("lines.jsonl.gz")},
    {65, SOURCE("lines.jsonl.zst")},
    {78, SOURCE("other.pdf")},
    {78, SOURCE("folder")},
    {78, SOURCE("hf://")},
    {78, SOURCE("s3://")},
    {78, SOURCE("ftp://host/file")},
    {78, "training.dataset_path=three.txt"}, /* and [[data.source]] */
    {66, "data.tokenizer=nowhere"},
    {78, "data.tokenizer=tokenizer.json"},
    {65, "data.tokenizer=tokenizer.txt"},
    {78, "data.tokenizer="},
    {78, "model.vocab_size=100"},
    {78, "objective.name=masked"},
    {78, "objective.name=masked objective.mask_token=none"},
    {78, "data.eod_mask_loss=true data.tokenizer="},
    {66, "validation.enable=true validation.dataset_path=nowhere"},
    {65, "validation.enable=true validation.dataset_path=open.jsonl"},
    {65, "validation.enable=true validation.dataset_path=empty.txt"},
    {65, "validation.enable=true validation.dataset_path=key.jsonl"},
    {78, "validation.enable=true validation.dataset_path=folder"},
    {65, "validation.enable=true data.validation_share=0.001"},
    {65, "validation.enable=true data.validation_share=0.5 " SOURCE("three.txt")},
    {66, "validation.enable=true validation.tasks=nowhere.jsonl"},
    {78, "validation.enable=true validation.tasks=three.txt"},
    {78, "validation.enable=true validation.tasks=task.jsonl"},
    {66, "checkpoint.initial_load_path=nowhere"},
    {66, "checkpoint.initial_load_path=folder"},
    {78, "checkpoint.initial_load_path=hf://"},
    {78, "checkpoint.initial_load_path=saved model.dim=64"},
    {78, "checkpoint.initial_load_path=saved model.n_layers=3"},
    {78, "checkpoint.initial_load_path=saved model.vocab_size=300"},
    {66, "checkpoint.load_step=7"},
    {66, "job.dump_folder=saved checkpoint.load_step=7"},
    {78, "job.dump_folder=saved model.dim=64"},
    {78, "job.dump_folder=saved debug.seed=7"},
    {78, "job.dump_folder=saved data.shuffle_window=99"},
    {78, "job.dump_folder=model"}, /* which has no optimizer state */
    {74, "job.dump_folder=/proc/x"},
    {74, "job.dump_folder=a_file"},
    {74, "job.dump_folder=a_file/below"},
    {74, "job.dump_folder=blocked_log"},
    {74, "job.dump_folder=blocked_save"},
    {74, "job.dump_folder=blocked_tb metrics.enable_tensorboard=true"},
    {78, "checkpoint.copy_to=folder"},
    {78, "checkpoint.copy_to=s3://"},
    {78, "device.kind=hip"},
    {78, "device.cpu=neon"},
    {78, "training.seq_len=8000000"}, /* more memory than a machine has */
    {78, "model.n_heads=3"},
    {78, "model.name=gpt2"},
    {78, "model.flavor=99B"},
    {78, "parallelism.tensor_parallel_degree=2"},
    {78, "parallelism.pipeline_parallel_degree=2"},
    {78, "training.steps=none"},
    {78, "training.unknown=1"},
};

TEST(check_refuses_what_train_refuses_with_the_same_message)
{
    struct text check = {0}, train = {0}, errors[2] = {{0}, {0}};
    struct stat entry;
    const char *program = getenv("LLAMERO") ? getenv("LLAMERO") : "build/llamero";
    char *before = getcwd(NULL, 0), *absolute = realpath(program, NULL);
    CHECK(before && absolute && !setenv("LLAMERO", absolute, 1) && !chdir(test_folder()));
    runs_write_corpus("corpus.jsonl", 3000);
    runs_write_config("run.toml", "corpus.jsonl");
    write_files();
    CHECK(runs_train("run.toml", "saved", "training.steps=1", NULL) == 0);
    CHECK(runs_train("run.toml", "model", "training.steps=1 checkpoint.last_save_model_only=true",
                     NULL) == 0);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        const char *words[12] = {absolute,  "check", "run.toml",
                                 "--ranks", "1",     "job.dump_folder=new"};
        char *copy = heap_strdup(broken[i].settings), *save = NULL;
        int n = 6;
        for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
            words[n++] = w;
        int checked = test_run(words, NULL, &check);
        CHECK(lstat("new", &entry) != 0); /* it leaves nothing */
        int trained = runs_train("run.toml", "new", broken[i].settings, &train);
        list_errors(check.data, &errors[0]), list_errors(train.data, &errors[1]);
        bool is_memory = strstr(check.data, "not enough memory") != NULL; /* of two processes */
        bool is_same = is_memory || !strcmp(errors[0].data, errors[1].data);
        if (checked != broken[i].code || trained != checked || !is_same)
            printf("%s: expected %d, check %d, train %d\n%s%s", broken[i].settings, broken[i].code,
                   checked, trained, check.data, train.data);
        CHECK(checked == broken[i].code && trained == checked && is_same && errors[0].len);
        free(copy);
    }
    CHECK(!chdir(before));
    free(before), free(absolute);
    text_release(&check), text_release(&train);
    text_release(&errors[0]), text_release(&errors[1]);
}

TEST(check_accepts_settings_under_which_train_needs_no_more)
{
    const char *folder = test_folder(), *config = test_path(folder, "run.toml");
    const char *run = test_path(folder, "run"), *corpus = test_path(folder, "corpus.jsonl");
    const char *native = test_path(folder, "native");
    struct text dump = {0}, err = {0};
    runs_write_corpus(corpus, 3000);
    runs_write_config(config, corpus);
    CHECK(runs_train(config, run, "training.steps=1", NULL) == 0);
    CHECK(LLAMERO(NULL, NULL, "convert", run, native, "--to", "native") == 0);
    for (size_t i = 0; i < 2; i++) {
        text_clear(&dump);
        text_addf(&dump, "job.dump_folder=%s", i ? native : test_path(folder, "new"));
        const char *share = i ? "debug.seed=0"                  /* step 0: initial weights */
                              : "data.validation_share=0.0001"; /* no row to validate with */
        int code =
            LLAMERO(NULL, &err, "check", config, dump.data, "validation.enable=false", share);
        if (code) fail_msg("%s: %s", share, err.data);
    }
    text_release(&dump), text_release(&err);
}

TEST(preflight_leaves_no_file_in_a_dump_folder_that_exists)
{
    struct file_list l = {0};
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.jsonl");
    const char *config = test_path(folder, "run.toml"), *dump = test_path(folder, "dump");
    struct text setting = {0};
    runs_write_corpus(corpus, 3000);
    runs_write_config(config, corpus);
    CHECK_STATUS(OK, file_make_dirs(dump));
    text_addf(&setting, "job.dump_folder=%s", dump);
    CHECK(LLAMERO(NULL, NULL, "check", config, setting.data) == 0);
    CHECK_STATUS(OK, file_list_dir(&l, dump));
    CHECK(!l.count);
    file_list_release(&l);
    text_release(&setting);
}

TEST(check_warns_of_a_device_that_other_machines_may_have)
{
    struct text err = {0};
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.jsonl");
    const char *config = test_path(folder, "run.toml");
    runs_write_corpus(corpus, 3000);
    runs_write_config(config, corpus);
    CHECK(LLAMERO(NULL, &err, "check", config, "device.kind=hip") == 0);
    CHECK(strstr(err.data, "warning: device and memory not checked: device.kind = \"hip\""));
    CHECK(LLAMERO(NULL, &err, "check", config, "device.kind=hip", "--ranks", "1") == 78);
    text_release(&err);
}

TEST(check_says_where_the_run_resumes_and_what_changed)
{
    struct text out = {0}, err = {0}, setting = {0};
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.jsonl");
    const char *config = test_path(folder, "run.toml"), *dump = test_path(folder, "dump");
    runs_write_corpus(corpus, 3000);
    runs_write_config(config, corpus);
    CHECK(runs_train(config, dump, "training.steps=1", NULL) == 0);
    text_addf(&setting, "job.dump_folder=%s", dump);
    CHECK(LLAMERO(&out, &err, "check", config, setting.data, "optimizer.lr=1e-3") == 0);
    CHECK(strstr(out.data, "resumes from step 1 in "));
    CHECK(strstr(err.data, "settings that changed since") && strstr(err.data, "optimizer.lr"));
    text_release(&out), text_release(&err), text_release(&setting);
}

TEST(an_empty_file_among_others_is_a_warning)
{
    struct text err = {0}, setting = {0};
    const char *folder = test_folder(), *corpus = test_path(folder, "a.jsonl");
    const char *config = test_path(folder, "run.toml");
    runs_write_corpus(corpus, 3000);
    runs_write_config(config, corpus);
    CHECK_STATUS(OK, file_write(test_path(folder, "b.jsonl"), "", 0));
    text_addf(&setting, "data.source.0.path=%s/*.jsonl", folder);
    CHECK(LLAMERO(NULL, &err, "check", config, setting.data) == 0);
    CHECK(strstr(err.data, "b.jsonl: the file has no documents"));
    CHECK(!strstr(err.data, "a.jsonl: the file"));
    text_adds(&setting, " training.steps=1");
    CHECK(runs_train(config, test_path(folder, "dump"), setting.data, &err) == 0);
    CHECK(strstr(err.data, "b.jsonl: the file has no documents"));
    text_release(&err), text_release(&setting);
}
