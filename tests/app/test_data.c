// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "base/json.h"
#include "data/rig.h"
#include "ops/cross_entropy.h"
#include "train/inputs.h"

/* A run of 25 steps on `ranks` ranks, with checkpoints of steps 10 and 20, and 25. */
struct trained {
    const char *folder, *config, *dump;
};

static struct trained train(const char *corpus, const char *settings)
{
    struct trained t = {.folder = test_folder()};
    struct text all = {0};
    t.config = test_path(t.folder, "run.toml"), t.dump = test_path(t.folder, "out");
    runs_write_config(t.config, corpus);
    text_addf(&all, "training.steps=25 %s", settings);
    CHECK(runs_train(t.config, t.dump, all.data, NULL) == 0);
    text_release(&all);
    return t;
}

static struct json *show_json(const char *run, const char *step, const char *flag)
{
    struct text out = {0}, err = {0};
    struct json *j;
    int code = LLAMERO(&out, &err, "data", "show", run, "--step", step, "--json", flag);
    if (code) fail_msg("exit code %d: %s", code, err.data);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "show", &j));
    text_release(&out), text_release(&err);
    return j;
}

static int64_t integer(const struct json *object, const char *key)
{
    int64_t value;
    CHECK_STATUS(OK, json_get_int(object, key, 0, INT64_C(1) << 53, &value));
    return value;
}

/* Row g as a loader without checkpoints reads it. */
static void check_ids(const struct json *row, const struct rows *want)
{
    int64_t g = integer(row, "row"), id;
    const struct json *v = json_first(json_get(row, "ids"));
    for (int i = 0; i <= want->T; i++, v = json_next(v)) {
        CHECK(v && json_as_int(v, 0, 1000, &id));
        if (i < want->T) CHECK(id == want->ids[g * want->T + i]);
        if (i && want->labels[g * want->T + i - 1] != LABEL_IGNORED)
            CHECK(id == want->labels[g * want->T + i - 1]);
    }
    CHECK(!v);
}

/* The text of each span is where the file has it. */
static void check_text(const struct json *row, const struct text *corpus)
{
    static const char bos[] = "<|begin_of_text|>";
    for (const struct json *x = json_first(json_get(row, "spans")); x; x = json_next(x)) {
        const char *text = json_string(json_get(x, "text"));
        uint64_t at = (uint64_t)integer(x, "offset") + (uint64_t)integer(x, "first_token");
        if (!strncmp(text, bos, sizeof bos - 1)) {
            text += sizeof bos - 1;
            CHECK(integer(x, "first_token") == 0 && integer(x, "offset") == 0);
        } else if (integer(x, "offset") == 0) {
            at--; /* only the chunk that begins the file has BOS */
        }
        CHECK(at + strlen(text) <= corpus->len);
        CHECK(strstr(text, "<|end_of_text|>") || !strncmp(text, corpus->data + at, strlen(text)));
    }
}

TEST(data_show_lists_the_rows_of_past_and_future_steps)
{
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    struct trained t = train(corpus, "");
    static const char *const steps[] = {"1", "11", "18", "25", "40"};
    struct config c;
    struct source_config one;
    struct text bytes = {0};
    struct rig r;
    CHECK_STATUS(OK, file_read(corpus, 1 << 20, &bytes));
    CHECK_STATUS(OK, config_load(&c, t.config, NULL, 0));
    rig_init(&r, "bytes", 32);
    r.data = inputs_data_config(&c, &one);
    r.sources[0] = r.data.sources[0];
    struct rows want = rows_of(&r, 4, 4 * 41);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        /* the run's folder has training.steps = 25 */
        struct json *j = show_json(i < 4 ? t.dump : t.config, steps[i], "--text");
        const struct json *row = json_first(json_get(j, "data"));
        int n = 0;
        CHECK(integer(j, "step") == atoi(steps[i]) && integer(j, "rows") == 4);
        for (; row; row = json_next(row), n++) {
            CHECK(integer(row, "row") == 4 * (atoi(steps[i]) - 1) + n);
            CHECK(integer(row, "rank") == 0 && integer(row, "place") == n);
            check_ids(row, &want);
            check_text(row, &bytes);
        }
        CHECK(n == 4);
        json_free(j);
    }
    rows_release(&want);
    rig_release(&r);
    config_release(&c);
    text_release(&bytes);
}

static size_t tokens_of_first_row(const char *run, const char *step)
{
    struct json *j = show_json(run, step, "--text");
    size_t count = json_count(json_get(json_first(json_get(j, "data")), "ids"));
    json_free(j);
    return count;
}

TEST(data_show_takes_the_settings_that_a_step_was_trained_with)
{
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    struct trained t = train(corpus, "");
    size_t before = tokens_of_first_row(t.dump, "25");
    CHECK(runs_train(t.config, t.dump, "training.steps=26 training.seq_len=16", NULL) == 0);
    CHECK(before == 33 && tokens_of_first_row(t.dump, "25") == 33);
    CHECK(tokens_of_first_row(t.dump, "26") == 17);
}

TEST(data_show_prints_documents_for_people_and_those_of_one_rank)
{
    struct text out = {0}, lines = {0};
    const char *folder = test_folder(), *config = test_path(folder, "run.toml");
    for (int i = 0; i < 40; i++) text_addf(&lines, "{\"text\": \"line\\n%02d\"}\n", i);
    rig_text(folder, "a.jsonl", lines.data);
    text_clear(&lines);
    rig_lines(&lines, "x", 0);
    runs_write_config(config, test_path(folder, "a.jsonl"));
    CHECK(LLAMERO(&out, NULL, "data", "show", config, "--step", "1", "--ranks", "2", "--rank", "1",
                  "--text", "data.streams=1", "data.shuffle_window=1") == 0);
    CHECK(
        !strncmp(out.data, "step 1: 4 rows from row 0 on, read from the start of the data\n", 62));
    CHECK(strstr(out.data, "row 1: rank 1, place 0\n") &&
          strstr(out.data, "row 3: rank 1, place 1\n"));
    CHECK(!strstr(out.data, "row 0:") && !strstr(out.data, "row 2:"));
    /* documents of 9 tokens; row 1 begins with token 32 */
    CHECK(strstr(out.data, "a.jsonl, offset 63: tokens 5 to 8\n    \\n03<|end_of_text|>\n"));
    CHECK(strstr(out.data, "a.jsonl, offset 84: tokens 0 to 8\n"
                           "    <|begin_of_text|>line\\n04<|end_of_text|>\n"));
    text_release(&out), text_release(&lines);
}

static void check_fails(int code, const char *why, const char *const *arguments)
{
    struct text err = {0};
    int got = test_llamero(NULL, &err, arguments);
    if (got != code || !strstr(err.data, why)) fail_msg("exit code %d: %s", got, err.data);
    text_release(&err);
}
#define CHECK_FAILS(code, why, ...)                                                                \
    check_fails(code, why, (const char *const[]){"data", __VA_ARGS__, NULL})

TEST(data_rejects_wrong_steps_ranks_runs_and_flags)
{
    const char *folder = test_folder(), *config = test_path(folder, "run.toml");
    const char *corpus = test_path(folder, "corpus.txt");
    runs_write_corpus(corpus, 60000);
    runs_write_config(config, corpus);
    CHECK_FAILS(64, "--step N is required", "show", config);
    CHECK_FAILS(64, "--step: \"0\": expected a whole number from 1", "show", config, "--step", "0");
    CHECK_FAILS(64, "step 41: must be between", "show", config, "--step", "41");
    CHECK_FAILS(64, "--rank 2: the run has data-parallel ranks 0 to 1", "show", config, "--step",
                "1", "--ranks", "2", "--rank", "2");
    CHECK_FAILS(64, "unexpected argument", "show", config, config, "--step", "1");
    CHECK_FAILS(64, "requires data stats", "show", config, "--step", "1", "--sample", "9");
    CHECK_FAILS(64, "requires data show", "stats", config, "--text");
    CHECK_FAILS(64, "unknown subcommand \"list\"; expected show or stats", "list", config);
    CHECK_FAILS(66, "has no config.toml", "show", folder, "--step", "1");
    CHECK_FAILS(66, "nowhere", "show", test_path(folder, "nowhere.toml"), "--step", "1");
}

TEST(data_show_refuses_data_that_changed_since_the_checkpoint)
{
    const char *corpus = test_path(test_folder(), "corpus.txt");
    struct text bytes = {0};
    runs_write_corpus(corpus, 60000);
    struct trained t = train(corpus, "");
    CHECK_STATUS(OK, file_read(corpus, 1 << 20, &bytes));
    bytes.data[1000] ^= 1;
    CHECK_STATUS(OK, file_write(corpus, bytes.data, bytes.len));
    CHECK_FAILS(78, "corpus.txt: the content of the file has changed", "show", t.dump, "--step",
                "22");
    CHECK(LLAMERO(NULL, NULL, "data", "show", t.dump, "--step", "22",
                  "data.accept_changed=corpus.txt") == 0);
    text_release(&bytes);
}
