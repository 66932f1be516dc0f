// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "comm/launched.h"

#include "base/rng.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

void runs_write_corpus(const char *path, size_t bytes)
{
    static const char *const words[] = {
        "the",  "llama", "walks", "over",  "a",      "mountain",  "and",   "carries", "salt",
        "from", "one",   "town",  "to",    "its",    "neighbour", "while", "snow",    "falls",
        "on",   "high",  "paths", "where", "nobody", "speaks",    "of",    "winter",  "again"};
    enum { WORDS = sizeof words / sizeof *words };
    size_t len = strlen(path);
    bool jsonl = len > 6 && !strcmp(path + len - 6, ".jsonl");
    struct text t = {0};
    for (uint64_t sentence = 0; t.len < bytes; sentence++) {
        uint64_t num_words = 4 + rng_below(12, 1, RNG_TEST, sentence, 0);
        if (jsonl) text_adds(&t, "{\"text\": \"");
        for (uint64_t i = 1; i <= num_words; i++)
            text_addf(&t, "%s%s", i > 1 ? " " : "",
                      words[rng_below(WORDS, 1, RNG_TEST, sentence, i)]);
        text_adds(&t, jsonl ? ".\"}\n" : sentence % 7 ? ". " : ".\n");
    }
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&t);
}

void runs_write_config(const char *path, const char *corpus)
{
    struct text t = {0};
    text_addf(&t,
              "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\ndim = 32\nn_layers = 2\n"
              "n_heads = 4\nn_kv_heads = 2\nffn_hidden = 64\n"
              "[training]\nlocal_batch_size = 2\nglobal_batch_size = 4\nseq_len = 32\nsteps = 40\n"
              "[lr_scheduler]\nwarmup_steps = 5\ntotal_steps = 40\n"
              "[optimizer]\nlr = 3e-3\n[metrics]\nlog_freq = 1\npeak_flops = 1e12\n"
              "[checkpoint]\nenable = true\ninterval = 10\n"
              "[data]\ntokenizer = \"bytes\"\nstreams = 8\nshuffle_window = 4\n"
              "[[data.source]]\npath = \"%s\"\n",
              corpus);
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&t);
}

int runs_train_ranks(int ranks, const char *config, const char *dump_folder, const char *settings,
                     struct text *err)
{
    enum { MAX_SETTINGS = 40 };
    const char *program = getenv("LLAMERO"),
               *words[MAX_SETTINGS + 5] = {"build/llamero", "train", config};
    struct text dump = {0};
    if (program) words[0] = program;
    text_addf(&dump, "job.dump_folder=%s", dump_folder);
    words[3] = dump.data;
    char *copy = heap_strdup(settings), *save = NULL;
    int n = 4;
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        CHECK(n < MAX_SETTINGS);
        words[n++] = word;
    }
    int code = ranks == 1 ? test_run(words, NULL, err) : launched_command(ranks, words, NULL, err);
    free(copy);
    text_release(&dump);
    return code;
}

int runs_train(const char *config, const char *dump_folder, const char *settings, struct text *err)
{
    return runs_train_ranks(1, config, dump_folder, settings, err);
}

char *runs_trained(const char *settings)
{
    const char *folder = test_folder();
    char *corpus = file_join(folder, "corpus.txt"), *config = file_join(folder, "run.toml");
    char *dump = file_join(folder, "out");
    runs_write_corpus(corpus, 60000);
    runs_write_config(config, corpus);
    CHECK(runs_train(config, dump, settings, NULL) == 0);
    free(corpus), free(config);
    return dump;
}

pid_t runs_start(const char *err, const char *const *arguments)
{
    enum { MAX_WORDS = 64 };
    const char *program = getenv("LLAMERO"), *words[MAX_WORDS + 1] = {"build/llamero"};
    posix_spawn_file_actions_t actions;
    pid_t child;
    if (program) words[0] = program;
    for (int n = 1; *arguments; n++) {
        CHECK(n < MAX_WORDS);
        words[n] = *arguments++;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err, O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    CHECK(!posix_spawn(&child, words[0], &actions, NULL, (char *const *)(uintptr_t)words, environ));
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

void runs_wait_for_bytes(const char *path, uint64_t bytes)
{
    const struct timespec moment = {.tv_nsec = 5000000};
    uint64_t size = 0;
    for (int n = 0; n < 4000 && size < bytes; n++) {
        nanosleep(&moment, NULL);
        if (file_exists(path)) CHECK_STATUS(OK, file_size(path, &size));
    }
    CHECK(size >= bytes);
}

int runs_wait(pid_t run, const char *err, struct text *said)
{
    int code;
    CHECK(waitpid(run, &code, 0) == run);
    CHECK_STATUS(OK, file_read(err, 1 << 26, said));
    return WIFSIGNALED(code) ? 128 + WTERMSIG(code) : WEXITSTATUS(code);
}

int runs_find_ranks(pid_t launcher, pid_t *ranks, int most)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    FILE *f = fopen(path, "r");
    if (!f) skip(); /* a kernel without this file */
    while (count < most && fscanf(f, "%d", &ranks[count]) == 1) count++;
    fclose(f);
    return count;
}

void runs_swap_ids(const char *from, const char *to, char a, char b)
{
    struct text json = {0};
    const char keys[][5] = {{'"', a, '"', ':'}, {'"', b, '"', ':'}};
    CHECK_STATUS(OK, file_read(from, 1 << 24, &json));
    char *first = strstr(json.data, keys[0]), *second = strstr(json.data, keys[1]);
    CHECK(first && second);
    first[1] = b, second[1] = a;
    CHECK_STATUS(OK, file_write(to, json.data, json.len));
    text_release(&json);
}

void runs_check_same_files(const char *a, const char *b, const char *name_part)
{
    struct file_list names;
    size_t compared = 0;
    CHECK_STATUS(OK, file_list_dir(&names, a));
    for (size_t i = 0; i < names.count; i++) {
        if (!strstr(names.paths[i], name_part)) continue;
        struct text x = {0}, y = {0};
        char *path_a = file_join(a, names.paths[i]), *path_b = file_join(b, names.paths[i]);
        CHECK_STATUS(OK, file_read(path_a, UINT64_MAX, &x));
        CHECK_STATUS(OK, file_read(path_b, UINT64_MAX, &y));
        if (x.len != y.len || memcmp(x.data, y.data, x.len))
            fail_msg("%s and %s differ", path_a, path_b);
        compared++;
        text_release(&x), text_release(&y);
        free(path_a), free(path_b);
    }
    file_list_release(&names);
    CHECK(compared > 0);
}

/* Timings and memory. */
static bool depends_on_machine(const char *key)
{
    static const char *const keys[] = {"tokens_per_second", "tokens_per_second_per_rank",
                                       "tflops_per_rank",   "mfu",
                                       "step_seconds",      "data_seconds",
                                       "memory_bytes"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

static void read_metrics(const char *dump_folder, struct text *t)
{
    char *path = file_join(dump_folder, "metrics.jsonl");
    CHECK_STATUS(OK, file_read(path, UINT64_MAX, t));
    free(path);
}

static void check_same_line(struct json *a, struct json *b, double tolerance, const char *where)
{
    if (tolerance > 0) {
        double x = json_number(json_get(a, "loss")), y = json_number(json_get(b, "loss"));
        CHECK(json_number(json_get(a, "step")) == json_number(json_get(b, "step")));
        if (!(fabs(x - y) <= tolerance)) fail_msg("%s: loss %.9g and %.9g", where, x, y);
        return;
    }
    CHECK(json_count(a) == json_count(b));
    for (const struct json *v = json_first(a); v; v = json_next(v)) {
        if (depends_on_machine(json_key(v))) continue;
        const struct json *w = json_get(b, json_key(v));
        CHECK(json_is_number(v) && json_is_number(w));
        if (json_number(v) != json_number(w))
            fail_msg("%s: %s is %.17g in one run and %.17g in the other", where, json_key(v),
                     json_number(v), json_number(w));
    }
}

static void check_metrics(const char *dump_a, const char *dump_b, double tolerance)
{
    struct text x = {0}, y = {0};
    char *next_x, *next_y;
    read_metrics(dump_a, &x), read_metrics(dump_b, &y);
    char *line_x = strtok_r(x.data, "\n", &next_x), *line_y = strtok_r(y.data, "\n", &next_y);
    for (; line_x && line_y;
         line_x = strtok_r(NULL, "\n", &next_x), line_y = strtok_r(NULL, "\n", &next_y)) {
        struct json *a, *b;
        CHECK_STATUS(OK, json_parse(line_x, strlen(line_x), dump_a, &a));
        CHECK_STATUS(OK, json_parse(line_y, strlen(line_y), dump_b, &b));
        check_same_line(a, b, tolerance, line_x);
        json_free(a), json_free(b);
    }
    CHECK(!line_x && !line_y);
    text_release(&x), text_release(&y);
}

void runs_check_same_metrics(const char *dump_a, const char *dump_b)
{
    check_metrics(dump_a, dump_b, 0);
}

void runs_check_close_losses(const char *dump_a, const char *dump_b, double tolerance)
{
    check_metrics(dump_a, dump_b, tolerance);
}

double runs_metric(const char *dump_folder, const char *key)
{
    struct text t = {0};
    struct json *line;
    double value = NAN;
    char *next;
    read_metrics(dump_folder, &t);
    for (char *at = strtok_r(t.data, "\n", &next); at; at = strtok_r(NULL, "\n", &next)) {
        CHECK_STATUS(OK, json_parse(at, strlen(at), dump_folder, &line));
        const struct json *v = json_get(line, key);
        if (json_is_number(v)) value = json_number(v);
        json_free(line);
    }
    text_release(&t);
    return value;
}

void runs_copy_other_build(const char *path)
{
    /* The header of the linker's note: size of the name, size of the ID, type, name. */
    static const char note[] = "\4\0\0\0\24\0\0\0\3\0\0\0GNU";
    const char *program = getenv("LLAMERO");
    struct text t = {0};
    CHECK_STATUS(OK, file_read(program ? program : "build/llamero", UINT64_MAX, &t));
    char *id = memmem(t.data, t.len, note, sizeof note);
    if (id)
        id[sizeof note] ^= 1;
    else
        text_adds(&t, "another build"); /* a program without the note is known by its hash */
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    CHECK(!chmod(path, 0755));
    text_release(&t);
}
