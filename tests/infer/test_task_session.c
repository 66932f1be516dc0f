// SPDX-License-Identifier: Apache-2.0
#include "comm/launched.h"
#include "test.h"

#include "base/file.h"
#include "base/json.h"

/* The folder is written by tests/oracle/lm_harness.py: a model, tasks, and what lm-eval gave. */
#define FOLDER    "tests/infer/data/lm_eval"
#define TOKENIZER "tests/tokenizer/data/small.json"
#define F32       "training.mixed_precision_param=float32", "device.threads=1"

static struct json *expected(void)
{
    struct json *v;
    CHECK_STATUS(OK, json_read(FOLDER "/expected.json", 1 << 20, &v));
    return v;
}

static const struct json *at(const struct json *list, int64_t i)
{
    const struct json *v = json_first(list);
    while (i-- > 0) v = json_next(v);
    CHECK(v);
    return v;
}

static int first_best(const struct json *log_likelihoods)
{
    int best = 0, i = 0;
    for (const struct json *v = json_first(log_likelihoods); v; v = json_next(v), i++)
        if (json_number(v) > json_number(at(log_likelihoods, best))) best = i;
    return best;
}

static void check_list(const struct json *got, const struct json *want)
{
    const struct json *w = json_first(want);
    CHECK(json_count(got) == json_count(want));
    for (const struct json *v = json_first(got); v; v = json_next(v), w = json_next(w))
        if (!(fabs(json_number(v) - json_number(w)) <= 1e-4))
            fail_msg("log-likelihood %.6f, lm-eval has %.6f", json_number(v), json_number(w));
}

/* Checks a line of --per-item against lm-eval's item. */
static void check_item(const struct json *line, const struct json *tasks)
{
    const struct json *task = json_get(tasks, json_string(json_get(line, "task")));
    bool scored = json_is_object(task); /* not by pseudo-log-likelihood */
    int64_t item = (int64_t)json_number(json_get(line, "item"));
    double choice = json_number(json_get(line, "choice")),
           gold = json_number(json_get(line, "gold"));
    const struct json *log_likelihoods =
        at(scored ? json_get(task, "log_likelihoods") : task, item);
    check_list(json_get(line, "log_likelihoods"), log_likelihoods);
    CHECK((int)choice == first_best(log_likelihoods));
    if (!scored) return;
    const struct json *g = json_first(at(json_get(task, "greedy"), item));
    for (const struct json *v = json_first(json_get(line, "greedy")); v;
         v = json_next(v), g = json_next(g))
        CHECK(json_true(v) == json_true(g));
    const struct json *norm = json_get(line, "choice_norm");
    const struct json *acc_norm = json_get(task, "acc_norm_of_items");
    CHECK(!norm == json_is_null(acc_norm));
    if (norm) CHECK((json_number(norm) == gold) == (json_number(at(acc_norm, item)) == 1));
    if (json_count(log_likelihoods) > 1)
        CHECK((choice == gold) == (json_number(at(json_get(task, "acc_of_items"), item)) == 1));
}

/* Checks the object of --json: every score that lm-eval has. */
static void check_scores(const struct text *out, const struct json *tasks)
{
    struct json *v;
    CHECK_STATUS(OK, json_parse(out->data, out->len, "eval", &v));
    for (const struct json *t = json_first(json_get(v, "tasks")); t; t = json_next(t)) {
        const struct json *want = json_get(tasks, json_string(json_get(t, "task")));
        CHECK(json_number(json_get(t, "items")) == 16);
        for (const struct json *w = json_first(want); w && json_is_object(want); w = json_next(w))
            if (json_is_number(w))
                CHECK_NEAR(json_number(json_get(t, json_key(w))), json_number(w), 1e-4);
    }
    json_free(v);
}

/* Evaluates all tasks on `ranks` ranks, and compares with expected.json's member `key`. */
static void check_tasks(const char *key, int ranks, const char *tokenizer, const char *suffix,
                        const char *const *more)
{
    static const char *const names[] = {"arc",  "mmlu",       "hellaswag",
                                        "piqa", "winogrande", "lambada"};
    struct text out = {0}, lines = {0}, err = {0};
    const char *folder = test_folder(), *program = getenv("LLAMERO");
    const char *items = test_path(folder, "items.jsonl");
    const char *words[32] = {program ? program : "build/llamero",
                             "eval",
                             FOLDER,
                             "--json",
                             F32,
                             "--tokenizer",
                             tokenizer,
                             "--per-item",
                             items,
                             "--task"};
    int n = 11, num_tasks = strcmp(suffix, "parquet") ? 6 : 3;
    for (int i = 0; i < num_tasks; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", names[i], suffix);
        words[n++] = test_path(FOLDER, name);
    }
    while (*more) words[n++] = *more++;
    int code = ranks > 1 ? launched_command(ranks, words, &out, &err) : test_run(words, &out, &err);
    if (code < 0) skip();
    if (code) fail_msg("%s", err.data);
    struct json *all = expected();
    const struct json *tasks = json_get(all, key);
    check_scores(&out, tasks);
    CHECK_STATUS(OK, file_read(items, 1 << 20, &lines));
    int count = 0;
    char *save = NULL;
    for (char *line = strtok_r(lines.data, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save), count++) {
        struct json *v;
        CHECK_STATUS(OK, json_parse(line, strlen(line), "items", &v));
        check_item(v, tasks);
        json_free(v);
    }
    CHECK(count == 16 * num_tasks);
    json_free(all);
    text_release(&out), text_release(&lines), text_release(&err);
}
#define TASKS(key, ranks, tokenizer, suffix, ...)                                                  \
    check_tasks(key, ranks, tokenizer, suffix, (const char *const[]){__VA_ARGS__ NULL})

TEST(every_item_scores_as_in_lm_eval)
{
    TASKS("bos", 1, TOKENIZER, "jsonl", );
    TASKS("bos", 1, TOKENIZER, "jsonl", "--batch-size", "3", );
    TASKS("bos", 1, TOKENIZER, "parquet", );
}

TEST(a_tokenizer_that_adds_no_bos_scores_as_in_lm_eval)
{
    if (TEST_SLOWED) skip(); /* the same code, other numbers */
    struct text json = {0};
    const char *path = test_path(test_folder(), "tokenizer.json");
    CHECK_STATUS(OK, file_read(TOKENIZER, 1 << 20, &json));
    char *processor = strstr(json.data, "\"post_processor\": "), *end = strchr(processor, '\n');
    memset(processor, ' ', (size_t)(end - processor)); /* removes the member's line */
    CHECK_STATUS(OK, file_write(path, json.data, json.len));
    TASKS("no_bos", 1, path, "jsonl", );
    text_release(&json);
}

TEST(a_masked_model_is_scored_by_pseudo_log_likelihood)
{
    if (TEST_SLOWED) skip(); /* the ranks of the next test score the same */
    TASKS("masked", 1, TOKENIZER, "jsonl", "objective.name=masked",
          "objective.mask_token=<|mask|>", );
}

TEST(ranks_score_tasks_as_one_rank)
{
    TASKS("bos", 2, TOKENIZER, "jsonl", );
    if (!TEST_SLOWED) TASKS("bos", 4, TOKENIZER, "jsonl", "parallelism.tensor_parallel_degree=2", );
    TASKS("masked", 2, TOKENIZER, "jsonl", "objective.name=masked", "objective.mask_token=<|mask|>",
          "parallelism.tensor_parallel_degree=2", );
}

/* A copy of the model with the largest weights and rotations that are accepted, so that its
 * attention scores overflow: all losses are NaN. */
static const char *write_model_of_nan(void)
{
    const char *folder = test_folder();
    struct text file = {0}, config = {0};
    uint64_t header;
    CHECK_STATUS(OK, file_read(FOLDER "/model.safetensors", 1 << 20, &file));
    memcpy(&header, file.data, sizeof header);
    for (size_t i = sizeof header + header; i < file.len; i += sizeof(bf16))
        memcpy(file.data + i, &(bf16){0x4974}, sizeof(bf16)); /* 999424 */
    CHECK_STATUS(OK, file_write(test_path(folder, "model.safetensors"), file.data, file.len));
    CHECK_STATUS(OK, file_read(FOLDER "/config.json", 1 << 20, &file));
    char *method = strstr(file.data, "\"default\"");
    CHECK(method);
    text_addf(&config, "%.*s", (int)(method - file.data), file.data);
    text_adds(&config, "\"yarn\", \"factor\": 2.0, \"attention_factor\": 1e6");
    text_adds(&config, method + strlen("\"default\""));
    CHECK_STATUS(OK, file_write(test_path(folder, "config.json"), config.data, config.len));
    text_release(&file), text_release(&config);
    return folder;
}

TEST(one_rank_says_that_a_score_is_not_finite)
{
    struct text err = {0};
    const char *program = getenv("LLAMERO"), *model = write_model_of_nan();
    const char *const words[] = {program ? program : "build/llamero",
                                 "eval",
                                 model,
                                 F32,
                                 "--tokenizer",
                                 TOKENIZER,
                                 "--task",
                                 FOLDER "/arc.jsonl",
                                 NULL};
    int code = launched_command(2, words, NULL, &err);
    if (code < 0) skip();
    const char *first = strstr(err.data, "the log-likelihood of request 0 is ");
    if (code != 80 || !first || strstr(first + 1, "the log-likelihood of request"))
        fail_msg("exit code %d: %s", code, err.data);
    text_release(&err);
}

TEST(tasks_are_printed_as_a_table)
{
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, &err, "eval", FOLDER, "--task", "wino=" FOLDER "/winogrande.jsonl",
                  "--tokenizer", TOKENIZER, "--limit", "10", "--task-format", "winogrande") == 0);
    CHECK(!strncmp(out.data, "task  ", 6) && strstr(out.data, "\nwino  "));
    CHECK(strstr(out.data, " 10  acc "));
    text_release(&out), text_release(&err);
}

TEST(flags_of_tasks_are_checked)
{
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "eval", FOLDER) == 64);
    CHECK(strstr(err.data, "expected MODEL and DATA, or MODEL and --task"));
    CHECK(LLAMERO(NULL, &err, "eval", FOLDER, "x.txt", "--limit", "3") == 64);
    CHECK(strstr(err.data, "require --task"));
    CHECK(LLAMERO(NULL, &err, "eval", FOLDER, "--task", "x.jsonl", "--ngram", "2") == 64);
    CHECK(LLAMERO(NULL, &err, "eval", FOLDER, "--task", "x.jsonl", "--tokenizer", TOKENIZER) == 66);
    CHECK(LLAMERO(NULL, &err, "eval", FOLDER, "--task", FOLDER "/arc.jsonl") == 78);
    CHECK(strstr(err.data, "has no tokenizer; set --tokenizer"));
    text_release(&err);
}
