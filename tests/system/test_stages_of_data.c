/* test_stages_of_data.c -- a run through the stages of its data. */
// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "base/file.h"
#include "config/data_stages.h"
#include "data/stream.h"
#include "system/runs.h"
#include "train/inputs.h"
#include "train/run.h"
#include "train/step_data.h"

#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 12 };

/* Two sources; stages begin after steps 4 and 7. */
struct staged_run {
    struct config config;
    struct training t; /* whose machine runs it */
    const char *folder;
};

static void staged_run_open(struct staged_run *r, const char *const *more)
{
    static const char *const sources[] = {"web", "math"};
    char lines[2][700];
    const char *settings[40] = {TRAINING_OF_CHECKPOINTS,
                                "training.global_batch_size=4",
                                "training.steps=12",
                                "data.tokenizer=bytes",
                                "data.streams=4",
                                "data.shuffle_window=3",
                                "metrics.log_freq=1",
                                "lr_scheduler.warmup_steps=2",
                                "checkpoint.interval=5",
                                "data.source.0.name=web",
                                "data.source.0.weight=1",
                                "data.source.1.name=math",
                                "data.source.1.weight=0",
                                "data.stage.0.at_step=4",
                                "data.stage.0.weights=[0.5, 0.5]",
                                "data.stage.0.seq_len=24",
                                "data.stage.1.at_tokens=544", /* 4 * 4 * 16 + 3 * 4 * 24 */
                                "data.stage.1.weights=[0, 1]",
                                "data.stage.1.global_batch_size=6",
                                "data.stage.1.attn_mask_type=block_causal"};
    int n = 0;
    while (settings[n]) n++;
    *r = (struct staged_run){.folder = test_folder()};
    for (int s = 0; s < 2; s++) {
        struct text t = {0};
        const char *name = test_path(r->folder, s ? "math.jsonl" : "web.jsonl");
        for (int i = 0; i < 60; i++)
            text_addf(&t, "{\"text\": \"%s %d is document %d\"}\n", sources[s], i * i, i);
        CHECK_STATUS(OK, file_write(name, t.data, t.len));
        text_release(&t);
        snprintf(lines[s], sizeof lines[s], "data.source.%d.path=%s", s, name);
        settings[n++] = lines[s];
    }
    char dump[300];
    snprintf(dump, sizeof dump, "job.dump_folder=%s", test_path(r->folder, "run"));
    settings[n++] = dump;
    while (*more) settings[n++] = *more++;
    CHECK_STATUS(OK, config_load(&r->config, NULL, settings, n));
    TRAINING_OPEN(&r->t, "debug.seed=1");
    arena_release(&r->t.machine.queue->scratch);
}
#define STAGED_RUN_OPEN(r, ...) staged_run_open(r, (const char *const[]){__VA_ARGS__, NULL})

static enum status train(struct staged_run *r)
{
    arena_release(&r->t.machine.queue->scratch);
    return run_train(&r->config, &r->t.machine);
}

static void staged_run_close(struct staged_run *r)
{
    config_release(&r->config);
    training_close(&r->t);
}

static char *read_text(const struct staged_run *r, const char *name)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(test_path(test_path(r->folder, "run"), name), 1 << 24, &t));
    return t.data;
}

static const char *step_path(const struct staged_run *r, int step)
{
    char name[40];
    snprintf(name, sizeof name, "run/checkpoint/step-%d", step);
    return test_path(r->folder, name);
}

/* The rows of a step. */
struct rows_of_step {
    uint64_t first;
    int count, T;
    int32_t ids[6][24];
};

static void keep_rows(const struct batch *b, struct rows_of_step *to, const struct loader *l)
{
    *to = (struct rows_of_step){.first = loader_step_row(l), .count = b->B, .T = b->T};
    for (int i = 0; i < b->B; i++)
        memcpy(to->ids[i], b->ids_BT + i * b->T, (size_t)b->T * sizeof *b->ids_BT);
}

/* The cursor after reading each stage's rows with a loader of its own; steps[step]: its rows;
 * NULL: not kept. */
static void read_stages(const struct staged_run *r, struct text *cursor, struct rows_of_step *steps)
{
    const struct mesh *mesh = &r->t.machine.mesh;
    for (size_t i = 0; i < data_stages_count(&r->config); i++) {
        struct data_stage s;
        struct source_config one;
        struct loader *l;
        struct batch b = {0};
        struct arena arena = {0};
        struct json *json = NULL;
        int rows;
        data_stages_open(&s, &r->config, mesh, i);
        struct data_config data = inputs_data_config(&s.config, &one);
        struct loader_options o =
            inputs_loader_options(&s.config, mesh, &data, r->t.tokenizer, 264);
        CHECK_STATUS(OK, loader_open(&l, &o));
        if (i) CHECK_STATUS(OK, json_parse(cursor->data, cursor->len, "cursor", &json));
        if (i) CHECK_STATUS(OK, loader_load(l, json));
        json_free(json);
        CHECK_STATUS(OK, arena_init(&arena, 1 << 16, NULL));
        batch_alloc(&b, (int)s.config.training.global_batch_size, (int)s.config.training.seq_len,
                    &arena);
        for (int64_t step = s.begin; step < s.end; step++) {
            CHECK_STATUS(OK, loader_next(l, &b, &rows));
            if (steps) keep_rows(&b, &steps[step + 1], l);
        }
        text_clear(cursor);
        loader_save(l, &(struct json_writer){.text = cursor});
        arena_release(&arena);
        loader_close(l);
        data_stages_close(&s);
    }
}

TEST(stages_read_on_in_every_source_with_their_own_weights_and_rows)
{
    struct staged_run r;
    struct text cursor = {0};
    struct json *expected, *state;
    STAGED_RUN_OPEN(&r, "data.prefetch=3");
    CHECK_STATUS(OK, config_check(&r.config, 1));
    CHECK_STATUS(OK, train(&r));
    read_stages(&r, &cursor, NULL);
    char *saved = read_text(&r, "checkpoint/step-12/state.json");
    CHECK_STATUS(OK, json_parse(saved, strlen(saved), "state.json", &state));
    CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &expected));
    const struct json *data = json_get(json_get(state, "train"), "data");
    CHECK(json_number(json_get(data, "next_row")) == 7 * 4 + 5 * 6);
    const struct json *a = json_first(json_get(data, "streams"));
    for (const struct json *b = json_first(json_get(expected, "streams")); b;
         a = json_next(a), b = json_next(b))
        for (size_t k = 0; k < json_count(b); k++)
            CHECK(json_number(json_item(a, k)) == json_number(json_item(b, k)));
    json_free(state), json_free(expected);
    free(saved);
    char *metrics = read_text(&r, "metrics.jsonl"), *log = read_text(&r, "log.txt");
    CHECK(strstr(metrics, "\"tokens_seen\":1264")); /* 4 * 64 + 3 * 96 + 5 * 144 */
    CHECK(strstr(log,
                 "data stage 1, steps 5 to 7: rows of 24 tokens, 4 per step; 0.5 web, 0.5 math"));
    CHECK(strstr(log, "data stage 2, steps 8 to 12: rows of 24 tokens, 6 per step; 0 web, 1 math"));
    CHECK(!strstr(log, "settings that changed"));
    free(metrics), free(log);
    text_release(&cursor);
    staged_run_close(&r);
}

/* Resumes within each stage, and at its beginning. */
TEST(run_killed_in_any_stage_ends_with_the_same_bits)
{
    static const int kept[] = {4, 5, 7, 10};
    struct staged_run r;
    STAGED_RUN_OPEN(&r, "data.prefetch=0");
    CHECK_STATUS(OK, train(&r));
    const char *straight = test_path(r.folder, "straight");
    CHECK(!test_run((const char *const[]){"cp", "-r", step_path(&r, STEPS), straight, NULL}, NULL,
                    NULL));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        for (int step = kept[i] + 1; step <= STEPS; step++)
            if (file_exists(step_path(&r, step)))
                CHECK_STATUS(OK, file_remove_tree(step_path(&r, step)));
        CHECK_STATUS(OK, train(&r));
        runs_check_same_files(straight, step_path(&r, STEPS), "model-");
        runs_check_same_files(straight, step_path(&r, STEPS), "optimizer-");
        runs_check_same_files(straight, step_path(&r, STEPS), "state.json");
    }
    /* the newest checkpoint is damaged, and the one before is of the stage before */
    for (int step = 8; step <= STEPS; step++)
        if (file_exists(step_path(&r, step)))
            CHECK_STATUS(OK, file_remove_tree(step_path(&r, step)));
    CHECK_STATUS(OK, file_write(test_path(step_path(&r, 7), "state.json"), "{", 1));
    CHECK_STATUS(OK, train(&r));
    runs_check_same_files(straight, step_path(&r, STEPS), "model-");
    staged_run_close(&r);
}

/* Loss of every row is not kept, so compare with the rows that loaders of each stage read. */
static void check_steps(const struct staged_run *r, const struct rows_of_step *expected)
{
    for (int step = 1; step <= STEPS; step++) {
        struct step_data d;
        const struct rows_of_step *e = &expected[step];
        CHECK_STATUS(OK, step_data_open(&d, &r->config, 1, step));
        CHECK(d.num_rows == e->count);
        for (int i = 0; i < e->count; i++) {
            struct step_row row;
            bool none;
            CHECK_STATUS(OK, step_data_next(&d, &row, &none));
            CHECK(!none && row.number == e->first + (uint64_t)i && row.tokens->filled == e->T + 1);
            CHECK(!memcmp(row.tokens->ids, e->ids[i], (size_t)e->T * sizeof(int32_t)));
        }
        step_data_close(&d);
    }
}

/* From any checkpoint, also from those of stages before, and without any. */
TEST(rows_of_a_step_are_found_through_stages)
{
    static struct rows_of_step steps[STEPS + 1];
    struct staged_run r;
    struct text cursor = {0};
    STAGED_RUN_OPEN(&r, "data.prefetch=0");
    read_stages(&r, &cursor, steps);
    check_steps(&r, steps);
    CHECK_STATUS(OK, train(&r));
    check_steps(&r, steps);
    CHECK_STATUS(OK, file_remove_tree(step_path(&r, 7)));
    check_steps(&r, steps);
    CHECK_STATUS(OK, file_remove_tree(step_path(&r, 5)));
    CHECK_STATUS(OK, file_remove_tree(step_path(&r, 4)));
    check_steps(&r, steps);
    text_release(&cursor);
    staged_run_close(&r);
}

/* Which tokens of which document were read. */
struct read_span {
    char file[200];
    uint64_t at, first, count;
};

/* Adds the spans of the steps; each begins after all of its document that was read before. */
static size_t add_spans(const struct config *c, int from, int to, struct read_span *seen,
                        size_t num)
{
    for (int step = from; step <= to; step++) {
        struct step_data d;
        struct step_row row;
        bool none;
        CHECK_STATUS(OK, step_data_open(&d, c, 1, step));
        for (;;) {
            CHECK_STATUS(OK, step_data_next(&d, &row, &none));
            if (none) break;
            for (size_t i = 0; i < row.tokens->spans->count; i++) {
                const struct token_span *x = &row.tokens->spans->items[i];
                const struct source *source = loader_source(d.loader, x->source);
                struct read_span now = {
                    .at = x->at, .first = x->first, .count = (uint64_t)x->count};
                /* a row's last token is only predicted, and begins the next row */
                bool is_last = i + 1 == row.tokens->spans->count;
                now.count -= is_last && c->data.row_overlap;
                snprintf(now.file, sizeof now.file, "%s", source->config->path);
                for (size_t k = 0; k < num; k++)
                    if (seen[k].at == now.at && !strcmp(seen[k].file, now.file))
                        CHECK(now.first >= seen[k].first + seen[k].count);
                if (now.count) seen[num++] = now;
                CHECK(num < 4000);
            }
        }
        step_data_close(&d);
    }
    return num;
}

/* Edits the configuration between starts: weights and rows, a source more, a source less, and the
 * source is back. */
TEST(no_token_is_read_twice_when_the_configuration_is_edited)
{
    static struct read_span seen[4000];
    static const char *const edits[][4] = {
        {"training.steps=3", NULL},
        {"training.steps=6", "training.seq_len=20", "data.source.1.weight=2", NULL},
        {"training.steps=9", "training.local_batch_size=3", "data.row_overlap=false", NULL},
        {"training.steps=12", "training.seq_len=9", "data.source.0.weight=3", NULL}};
    struct staged_run r;
    size_t num = 0;
    STAGED_RUN_OPEN(&r, "data.prefetch=0");
    char web[300], math[300], more[300], dump[300];
    snprintf(web, sizeof web, "%s", test_path(r.folder, "web.jsonl"));
    snprintf(math, sizeof math, "%s", test_path(r.folder, "math.jsonl"));
    snprintf(more, sizeof more, "%s", test_path(r.folder, "more.jsonl"));
    snprintf(dump, sizeof dump, "job.dump_folder=%s", test_path(r.folder, "edited"));
    struct text lines = {0};
    for (int i = 0; i < 60; i++) text_addf(&lines, "{\"text\": \"more of %d\"}\n", i);
    CHECK_STATUS(OK, file_write(more, lines.data, lines.len));
    text_release(&lines);
    for (int edit = 0; edit < 4; edit++) {
        const char *paths[3] = {web, math, more};
        const char *names[3] = {"web", "math", "more"};
        int first = edit == 2; /* without "web" */
        int last = edit ? 3 : 2;
        char settings[6][400];
        const char *list[40] = {TRAINING_OF_CHECKPOINTS,
                                "model.vocab_size=264",
                                "training.global_batch_size=6",
                                "data.tokenizer=bytes",
                                "data.streams=4",
                                "data.shuffle_window=3",
                                dump};
        int n = 0, k = 0;
        while (list[n]) n++;
        for (int i = first; i < last; i++, k++) {
            snprintf(settings[2 * k], sizeof *settings, "data.source.%d.path=%s", k, paths[i]);
            snprintf(settings[2 * k + 1], sizeof *settings, "data.source.%d.name=%s", k, names[i]);
            list[n++] = settings[2 * k], list[n++] = settings[2 * k + 1];
        }
        for (int i = 0; edits[edit][i]; i++) list[n++] = edits[edit][i];
        struct config c;
        CHECK_STATUS(OK, config_load(&c, NULL, list, n));
        CHECK_STATUS(OK, config_check(&c, 1));
        arena_release(&r.t.machine.queue->scratch);
        CHECK_STATUS(OK, run_train(&c, &r.t.machine));
        num = add_spans(&c, 3 * edit + 1, 3 * edit + 3, seen, num);
        config_release(&c);
    }
    CHECK(num > 100);
    staged_run_close(&r);
}

TEST(a_resume_that_is_refused_leaves_the_run_as_it_was)
{
    struct staged_run r;
    STAGED_RUN_OPEN(&r, "data.prefetch=0");
    CHECK_STATUS(OK, train(&r));
    char *before = read_text(&r, "config.toml");
    r.config.data.shuffle_window = 5, r.config.training.steps = 20;
    CHECK_STATUS(CONFIG, train(&r));
    CHECK_MESSAGE("data.shuffle_window was 3, is 5");
    char *after = read_text(&r, "config.toml");
    CHECK(!strcmp(before, after));
    free(before), free(after);
    staged_run_close(&r);
}

/* One order of samples, whatever the batch sizes of its stages. */
TEST(stages_may_change_the_batch_size_in_megatrons_order)
{
    struct staged_run r;
    STAGED_RUN_OPEN(&r, "data.prefetch=0");
    char dump[300];
    snprintf(dump, sizeof dump, "job.dump_folder=%s", test_path(r.folder, "megatron"));
    const char *settings[] = {TRAINING_OF_CHECKPOINTS,
                              "model.vocab_size=5000",
                              "training.steps=8",
                              "data.order=megatron",
                              "data.source.0.path=mock",
                              "data.seed=1",
                              "data.stage.0.at_step=4",
                              "data.stage.0.global_batch_size=8",
                              dump};
    struct config c;
    CHECK_STATUS(OK, config_load(&c, NULL, settings, sizeof settings / sizeof *settings));
    CHECK_STATUS(OK, config_check(&c, 1));
    arena_release(&r.t.machine.queue->scratch);
    CHECK_STATUS(OK, run_train(&c, &r.t.machine));
    struct text state = {0};
    CHECK_STATUS(OK, file_read(test_path(r.folder, "megatron/checkpoint/step-8/state.json"),
                               1 << 20, &state));
    CHECK(strstr(state.data, "\"next_row\": 40,"));
    text_release(&state);
    config_release(&c);
    staged_run_close(&r);
}

/* What the run's log says of a changed key: "old -> new (class)"; NULL: nothing. */
static char *listed_change(const char *folder, const char *key)
{
    struct text log = {0};
    char begin[120];
    snprintf(begin, sizeof begin, "\n%s: ", key);
    CHECK_STATUS(OK, file_read(test_path(folder, "log.txt"), 1 << 24, &log));
    const char *line = strstr(log.data, begin);
    char *out = line ? heap_string(line + 1, strcspn(line + 1, "\n")) : NULL;
    text_release(&log);
    return out;
}

/* Continues the run in the folder up to `steps` with a setting changed.  Returns false if it is not
 * allowed with this order of the data. */
static bool resume_changed(struct staged_run *r, const char *folder, const char *const *order,
                           int64_t steps, const char *change, enum status *st)
{
    char dump[400], source[400], last[100];
    const char *list[40] = {TRAINING_OF_CHECKPOINTS,
                            "model.vocab_size=5000",
                            "data.tokenizer=bytes",
                            dump,
                            source,
                            last};
    struct config c;
    int n = 0;
    snprintf(last, sizeof last, "training.steps=%lld", (long long)steps);
    snprintf(dump, sizeof dump, "job.dump_folder=%s", folder);
    snprintf(source, sizeof source, "data.source.0.path=%s",
             strstr(order[0], "megatron") ? "mock" : test_path(r->folder, "web.jsonl"));
    while (list[n]) n++;
    while (*order) list[n++] = *order++;
    if (change) list[n++] = change;
    CHECK_STATUS(OK, config_load(&c, NULL, list, n));
    bool is_allowed = !config_check(&c, 1);
    arena_release(&r->t.machine.queue->scratch);
    if (is_allowed) *st = run_train(&c, &r->t.machine);
    config_release(&c);
    return is_allowed;
}

/* `line` of the log is about the change; NULL: it is refused, and the message is about it. */
static void check_class(const char *line, const char *key, enum status st)
{
    char words[120];
    snprintf(words, sizeof words, "%s was ", key);
    if (!line && (st != STATUS_CONFIG || !strstr(status_message(), words)))
        fail_msg("%s: %s %s", key, status_name(st), status_message());
    if (line && strstr(line, "(refused if")) return;
    if (line && st != (strstr(line, "(refused)") ? STATUS_CONFIG : STATUS_OK))
        fail_msg("%s, but: %s %s", line, status_name(st), status_message());
}

static bool is_set(const char *const *settings, const char *setting)
{
    while (*settings && strcmp(*settings, setting) != 0) settings++;
    return *settings;
}

/* A resumed run does with each change what the list of changes in its log says. */
TEST(the_listed_class_of_each_change_is_what_the_resume_does)
{
    static const struct {
        const char *settings[5], *back; /* to the default */
    } orders[] = {{{"data.packing=concatenate"}, NULL},
                  {{"data.packing=best_fit", "model.attn_mask_type=block_causal"},
                   "data.packing=concatenate"},
                  {{"data.packing=best_fit", "model.attn_mask_type=block_causal",
                    "objective.name=masked", "objective.mask_token=<|mask|>"},
                   "objective.name=causal"},
                  {{"data.order=megatron", "data.samples=2000"}, "data.order=streams"}};
    static const char *const changes[] = {
        "model.dim=32",
        "model.n_layers=2",
        "model.ffn_hidden=32",
        "model.vocab_size=5100",
        "model.qk_norm=true",
        "model.tie_embeddings=true",
        "model.rope_theta=7",
        "model.norm_eps=1e-3",
        "model.rope_scaling=none",
        "model.attn_mask_type=block_causal",
        "training.seq_len=12",
        "training.local_batch_size=4",
        "training.global_batch_size=4",
        "training.mixed_precision_param=bfloat16",
        "training.loss_norm=rank_mean",
        "training.z_loss=1e-3",
        "training.determinism=elastic",
        "optimizer.lr=1e-3",
        "optimizer.state_dtype=bfloat16",
        "optimizer.master_weights=split",
        "debug.seed=5",
        "data.order=megatron",
        "data.packing=best_fit",
        "data.seed=9",
        "data.streams=3",
        "data.shuffle_window=9",
        "data.bos=false",
        "data.eos=false",
        "data.row_overlap=false",
        "data.validation_share=0.2",
        "data.prefetch=9",
        "data.split=\"900, 100, 0\"",
        "data.blend=lengths",
        "data.sampler=cyclic",
        "data.eod_mask_loss=true",
        "data.source.0.weight=3",
        "data.source.0.name=other",
        "objective.mask_probability=0.4",
        "objective.name=masked",
    };
    enum { CHANGES = sizeof changes / sizeof *changes };
    struct staged_run r;
    int tried = 0;
    STAGED_RUN_OPEN(&r, "data.prefetch=0");
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        char folder[300];
        enum status st;
        int64_t steps = 1;
        snprintf(folder, sizeof folder, "%s-%zu", test_path(r.folder, "order"), o);
        CHECK(resume_changed(&r, folder, orders[o].settings, steps, NULL, &st) && !st);
        for (size_t i = 0; i <= CHANGES; i++) {
            const char *change = i < CHANGES ? changes[i] : orders[o].back;
            if (!change || is_set(orders[o].settings, change)) continue;
            CHECK(unlink(test_path(folder, "log.txt")) == 0);
            if (!resume_changed(&r, folder, orders[o].settings, steps + 1, change, &st)) {
                CHECK_STATUS(OK, file_write(test_path(folder, "log.txt"), "", 0));
                continue;
            }
            char key[100];
            snprintf(key, sizeof key, "%.*s", (int)strcspn(change, "="), change);
            char *line = listed_change(folder, key);
            check_class(line, key, st);
            tried++, steps += !st;
            free(line);
        }
    }
    print_message("%d changes\n", tried);
    CHECK(tried > 110);
    staged_run_close(&r);
}
