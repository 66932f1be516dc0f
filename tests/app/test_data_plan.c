// SPDX-License-Identifier: Apache-2.0
#include "app/data_plan.h"

#include "data/loader.h"
#include "data/order.h"
#include "data/token_spans.h"
#include "system/runs.h"
#include "train/inputs.h"

#include <math.h>

/* A run of two sources: lines of one sentence, and chunks of text. */
static const char *write_run(const char *folder)
{
    const char *config = test_path(folder, "run.toml"), *lines = test_path(folder, "corpus.jsonl");
    struct text t = {0};
    runs_write_corpus(lines, 400000);
    runs_write_corpus(test_path(folder, "corpus.txt"), 400000);
    runs_write_config(config, lines);
    CHECK_STATUS(OK, file_read(config, 1 << 16, &t));
    text_addf(&t, "name = \"lines\"\n[[data.source]]\npath = \"%s\"\nweight = 0.1\n",
              test_path(folder, "corpus.txt"));
    CHECK_STATUS(OK, file_write(config, t.data, t.len));
    text_release(&t);
    return config;
}

static struct json *check(const char *config, struct text *err, const char *const *settings)
{
    const char *arguments[16] = {"check", config, "--json"};
    struct text out = {0};
    struct json *v;
    for (int n = 3; *settings; n++) arguments[n] = *settings++;
    CHECK(test_llamero(&out, err, arguments) == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "check", &v));
    text_release(&out);
    return v;
}

static double number(const struct json *v, const char *key)
{
    return json_number(json_get(v, key));
}

/* Counts the documents of each source that the rows of the run begin. */
static void count_documents(const char *config, const char *const *settings, int num_settings,
                            double counts[2])
{
    struct config c;
    struct preflight p;
    struct source_config one;
    struct loader *l;
    CHECK_STATUS(OK, config_load(&c, config, settings, num_settings));
    CHECK_STATUS(OK, preflight(&p, &c, &(struct preflight_options){.num_ranks = 1}));
    struct data_config d = inputs_data_config(&c, &one);
    struct loader_options o = inputs_loader_options(&c, &p.mesh, &d, p.tokenizer, p.shape.V);
    o.prefetch_rows = 0, o.lists_spans = true;
    CHECK_STATUS(OK, loader_open(&l, &o));
    counts[0] = counts[1] = 0;
    for (int64_t i = 0; i < o.run_rows; i++) {
        const struct token_row *row;
        uint64_t place;
        CHECK_STATUS(OK, loader_next_tokens(l, &row, &place));
        for (size_t k = 0; k < row->spans->count; k++)
            counts[row->spans->items[k].source] += row->spans->items[k].first == 0;
    }
    loader_close(l);
    preflight_release(&p);
    config_release(&c);
}

TEST(check_says_what_a_run_reads_of_each_source)
{
    const char *config = write_run(test_folder());
    static const char *const settings[] = {"training.steps=12800", "training.global_batch_size=16",
                                           "data.row_overlap=false", "training.seq_len=100", NULL};
    struct text err = {0};
    double counts[2];
    struct json *v = check(config, &err, settings);
    const struct json *stage = json_first(json_get(v, "stages")),
                      *read = json_get(stage, "sources");
    CHECK(json_count(json_get(v, "stages")) == 1 && json_count(read) == 2);
    CHECK(number(stage, "first_step") == 1 && number(stage, "last_step") == 12800);
    CHECK(number(stage, "rows") == 204800 && number(stage, "tokens") == 20480000);
    CHECK_NEAR(number(json_item(read, 0), "share"), 1 / 1.1, 1e-5);
    CHECK_NEAR(number(json_item(read, 0), "tokens") + number(json_item(read, 1), "tokens"),
               20480000, 2);
    count_documents(config, settings, 4, counts);
    for (size_t i = 0; i < 2; i++) {
        const struct json *source = json_item(json_get(v, "sources"), i), *r = json_item(read, i);
        double documents = number(source, "documents");
        print_message("  about %.0f documents, read %.0f\n", number(r, "documents"), counts[i]);
        CHECK(fabs(number(r, "documents") / counts[i] - 1) < 0.1);
        CHECK_NEAR(number(r, "epochs"), number(r, "documents") / documents, 0.01);
        CHECK(json_true(json_get(source, "checked")) && json_true(json_get(source, "estimated")));
        CHECK(json_true(json_get(source, "repeats")) == (number(r, "epochs") > 1));
    }
    CHECK(!err.len || strstr(err.data, "corpus.txt is read more than once"));
    json_free(v);
    text_release(&err);
}

#define STAGES                                                                                     \
    "training.steps=400", "training.seq_len=64", "data.stage.0.at_step=100",                       \
        "data.stage.0.weights=[0, 1]", "data.stage.0.seq_len=128",                                 \
        "data.stage.0.global_batch_size=8"

TEST(check_warns_of_the_stage_and_step_in_which_a_source_repeats)
{
    const char *config = write_run(test_folder());
    struct text err = {0}, out = {0};
    static const char *const settings[] = {STAGES, "training.steps=1000", NULL};
    struct json *v = check(config, &err, settings);
    const struct json *sources = json_get(v, "sources"), *stages = json_get(v, "stages");
    CHECK(json_count(stages) == 2);
    const struct json *first = json_get(json_item(stages, 0), "sources");
    const struct json *second = json_get(json_item(stages, 1), "sources");
    CHECK(number(json_item(stages, 1), "first_step") == 101);
    CHECK(number(json_item(stages, 1), "rows") == 900 * 8);
    for (size_t i = 0; i < 2; i++)
        CHECK(number(json_item(first, i), "epochs") ==
              number(json_item(second, i), "epochs_before"));
    CHECK(number(json_item(second, 0), "documents") == 0);
    CHECK(number(json_item(second, 1), "tokens") == 900 * 8 * 128);
    /* 400000 tokens of text, of which the first stage reads some */
    const struct json *text = json_item(sources, 1);
    double before = number(json_item(first, 1), "tokens");
    CHECK(!json_true(json_get(json_item(sources, 0), "repeats")));
    CHECK(json_true(json_get(text, "repeats")) && number(text, "repeat_stage") == 1);
    CHECK_NEAR(number(text, "repeat_step"), 100 + (400000 - before) / (8 * 128), 5);
    CHECK(strstr(err.data, "data stage 1: ") && strstr(err.data, "corpus.txt is read more than"));
    CHECK(!strstr(err.data, "lines is read"));
    json_free(v);
    text_clear(&err);
    CHECK(LLAMERO(&out, &err, "check", config, STAGES) == 0);
    CHECK(strstr(out.data, "data stage 0, steps 1 to 100: 400 rows of 64 tokens, 25,600 tokens"));
    CHECK(strstr(out.data, "data stage 1, steps 101 to 400: 2,400 rows of 128 tokens"));
    CHECK(strstr(out.data, "estimates from a sample"));
    CHECK(!err.len || !strstr(err.data, "read more than once"));
    text_release(&err), text_release(&out);
}

TEST(check_leaves_out_stages_that_begin_after_the_last_step)
{
    const char *config = write_run(test_folder());
    struct text err = {0};
    static const char *const settings[] = {STAGES, "training.steps=100", NULL};
    struct json *v = check(config, &err, settings);
    CHECK(json_count(json_get(v, "stages")) == 1);
    json_free(v);
    text_release(&err);
}

TEST(check_counts_held_out_documents_as_not_read)
{
    const char *config = write_run(test_folder());
    struct text err = {0};
    static const char *const none[] = {NULL}, *const half[] = {"data.validation_share=0.5", NULL};
    struct json *all = check(config, &err, none), *held_out = check(config, &err, half);
    double a = number(json_first(json_get(all, "sources")), "documents");
    CHECK_NEAR(number(json_first(json_get(held_out, "sources")), "documents"), a / 2, 1);
    json_free(all), json_free(held_out);
    text_release(&err);
}

TEST(check_does_not_estimate_what_is_not_on_this_machine)
{
    const char *config = write_run(test_folder());
    struct text err = {0}, out = {0};
    static const char *const settings[] = {STAGES, "data.source.0.path=hf://datasets/o/n/a.jsonl",
                                           NULL};
    setenv("HF_HUB_CACHE", test_folder(), 1);
    setenv("HF_HUB_OFFLINE", "1", 1);
    struct json *v = check(config, &err, settings);
    const struct json *sources = json_get(v, "sources");
    CHECK(!json_true(json_get(json_item(sources, 0), "checked")));
    CHECK(json_is_null(json_get(json_item(sources, 0), "documents")));
    CHECK(json_true(json_get(json_item(sources, 1), "checked")));
    const struct json *read = json_get(json_first(json_get(v, "stages")), "sources");
    CHECK(json_is_null(json_get(json_item(read, 1), "tokens")));
    CHECK_NEAR(number(json_item(read, 1), "share"), 0.1 / 1.1, 1e-5);
    json_free(v);
    CHECK(LLAMERO(&out, &err, "check", config, settings[6]) == 0);
    CHECK(strstr(out.data, "lines (not checked: not on this machine)"));
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_HUB_OFFLINE");
    text_release(&err), text_release(&out);
}

TEST(check_knows_the_epochs_of_megatrons_order)
{
    const char *config = write_run(test_folder());
    struct text err = {0};
    static const char *const settings[] = {"data.order=megatron",
                                           "data.source.0.path=mock",
                                           "data.source.1.path=mock",
                                           "training.seq_len=1024",
                                           "training.steps=10000",
                                           "data.source.1.weight=3",
                                           NULL};
    struct json *v = check(config, &err, settings);
    const struct json *source = json_first(json_get(v, "sources"));
    const struct json *stage = json_first(json_get(v, "stages"));
    const struct json *read = json_get(stage, "sources");
    double samples =
        floor((number(source, "documents") * number(source, "tokens_per_document") - 1) / 1024);
    CHECK(!json_true(json_get(source, "estimated")));
    CHECK_NEAR(number(json_item(read, 1), "share"), 0.75, 1e-6);
    CHECK_NEAR(number(json_item(read, 1), "tokens"), 0.75 * 40000 * 1024, 1);
    CHECK_NEAR(number(json_item(read, 1), "epochs"), 30000 / samples, 1e-4 * 30000 / samples);
    CHECK(number(source, "documents") == 33333);
    json_free(v);
    text_release(&err);
}

/* Only a causal row without overlap reads one token more, its last label. */
TEST(check_knows_how_many_tokens_the_rows_of_an_objective_read)
{
    const char *config = write_run(test_folder());
    double epochs[3];
    for (int i = 0; i < 3; i++) {
        const char *objective = i ? i > 1 ? "diffusion" : "masked" : "causal";
        char name[40];
        snprintf(name, sizeof name, "objective.name=%s", objective);
        struct json *v = check(config, NULL,
                               (const char *const[]){name, "objective.mask_token=<|mask|>",
                                                     "data.row_overlap=false", "training.seq_len=4",
                                                     "training.steps=20", NULL});
        const struct json *stage = json_first(json_get(v, "stages"));
        epochs[i] = number(json_first(json_get(stage, "sources")), "epochs");
        json_free(v);
    }
    CHECK(epochs[1] > 0 && epochs[1] == epochs[2]);
    CHECK_NEAR(epochs[0] / epochs[1], 1.25, 1e-4);
}
