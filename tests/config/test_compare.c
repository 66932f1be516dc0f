// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "config/config.h"

struct listed_values {
    struct text keys, lines; /* every key once; "section.key = value" */
};

static void list_value(void *context, const char *key, const char *value)
{
    struct listed_values *l = context;
    text_addf(&l->keys, "%s\n", key);
    text_addf(&l->lines, "%s = %s\n", key, value);
}

static size_t count_of(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

TEST(for_each_lists_every_value_that_config_toml_has)
{
    struct listed_values l = {0};
    struct text toml = {0};
    struct config c;
    CHECK_STATUS(OK, config_load(&c, NULL,
                                 (const char *const[]){"optimizer.lr=0.25", "data.source.0.path=a",
                                                       "data.source.1.path=b"},
                                 3));
    config_for_each(&c, list_value, &l);
    config_write(&c, false, &toml);
    CHECK(count_of(l.lines.data, " = ") == count_of(toml.data, " = "));
    CHECK(strstr(l.lines.data, "optimizer.lr = 0.25\n"));
    CHECK(strstr(l.lines.data, "data.source.1.path = \"b\"\n"));
    for (char *save, *key = strtok_r(l.keys.data, "\n", &save); key;
         key = strtok_r(NULL, "\n", &save)) {
        struct text help = {0};
        CHECK_STATUS(OK, config_explain(key, &help));
        text_release(&help);
    }
    text_release(&toml), text_release(&l.keys), text_release(&l.lines);
    config_release(&c);
}

static void compare(const struct config *a, const struct config *b, struct config_changes *out)
{
    config_compare(&(struct config_model){a, NULL}, &(struct config_model){b, NULL}, out);
}

TEST(compare_lists_what_may_change_results)
{
    struct config a, b;
    struct config_changes out;
    const char *sources = "[[data.source]]\npath = \"x\"\n";
    char *path = file_join(test_folder(), "a.toml");
    CHECK_STATUS(OK, file_write(path, sources, strlen(sources)));
    CHECK_STATUS(OK, config_load(&a, path, NULL, 0));
    compare(&a, &a, &out);
    CHECK(!out.lines.len && !out.refused.len);
    const char *settings[] = {"training.global_batch_size=64", "data.source.0.weight=0.5",
                              "job.dump_folder=elsewhere",     "metrics.log_freq=7",
                              "data.accept_changed=[\"x\"]",   "comm.init_timeout_seconds=9",
                              "model.vocab_multiple=1"};
    CHECK_STATUS(OK, config_load(&b, path, settings, 7));
    compare(&a, &b, &out);
    CHECK(strstr(out.lines.data, "training.global_batch_size: -1 -> 64 (continues)\n"));
    CHECK(strstr(out.lines.data, "data.source.0.weight: 1.0 -> 0.5 (continues)"));
    CHECK(!strstr(out.lines.data, "job.") && !strstr(out.lines.data, "metrics."));
    CHECK(!strstr(out.lines.data, "comm.") && !strstr(out.lines.data, "accept_changed"));
    CHECK(!strstr(out.lines.data, "vocab_multiple"));
    CHECK(!out.refused.len);
    config_release(&a), config_release(&b);
    config_changes_release(&out);
    free(path);
}

TEST(compare_classifies_changes)
{
    static const struct {
        const char *setting, *line, *refused;
    } cases[] = {
        {"training.seq_len=64", "training.seq_len: 2048 -> 64 (continues)", ""},
        {"data.streams=3", "data.streams: 256 -> 3 (continues)", ""},
        {"data.seed=3", "data.seed: -1 -> 3 (refused)", "data.seed was -1, is 3 (command line)"},
        {"debug.seed=3", "(refused)", "debug.seed was 0, is 3 (command line)"},
        {"data.shuffle_window=3", "data.shuffle_window: 64 -> 3 (refused)",
         "data.shuffle_window was 64, is 3 (command line)"},
        {"model.dim=64", "model.dim: 0 -> 64 (refused if a weight's shape changes)", ""},
        {"model.init_std=4", "(continues)", ""},
        {"optimizer.name=Muon", "(refused, except with checkpoint.exclude_from_loading", ""},
        {"model.flavor=8B", "(refused if a weight's shape changes)", ""},
        {"model.attn_mask_type=block_causal", "(refused, except with checkpoint.accept_changed)",
         "model.attn_mask_type was \"causal\", is \"block_causal\" (command line)"},
        {"data.source.0.column=x", "(refused)", ""},
        {"data.source.0.name=x", "(restarts this source, unless it was read under this name)", ""},
        {"data.source.1.path=y", "data.source: 1 -> 2 (continues)", ""},
        {"data.stage.0.at_step=5", "data.stage: 0 -> 1 (continues)", ""},
    };
    const char *source = "data.source.0.path=x",
               *saves = "checkpoint.enable=true"; /* for a stage */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config a, b;
        struct config_changes out;
        const char *const settings[] = {source, saves, cases[i].setting};
        CHECK_STATUS(OK, config_load(&a, NULL, settings, 2));
        CHECK_STATUS(OK, config_load(&b, NULL, settings, 3));
        compare(&a, &b, &out);
        CHECK(strstr(out.lines.data, cases[i].line) && !strchr(out.lines.data, '\n'));
        CHECK(!strcmp(out.refused.len ? out.refused.data : "", cases[i].refused));
        config_changes_release(&out);
        config_release(&a), config_release(&b);
    }
}

/* What a resume refuses with these settings, of a run without settings of its own. */
static void check_model_changes(const char *const *settings, int count, const char *refused,
                                const char *names)
{
    struct config a, b;
    struct model_shape old, now;
    struct config_changes out;
    CHECK_STATUS(OK, config_load(&a, NULL, NULL, 0));
    CHECK_STATUS(OK, config_load(&b, NULL, settings, count));
    CHECK_STATUS(OK, model_shape_resolve(&old, &a.model, 0));
    CHECK_STATUS(OK, model_shape_resolve(&now, &b.model, 0));
    config_compare(&(struct config_model){&a, &old}, &(struct config_model){&b, &now}, &out);
    if (strcmp(out.refused.len ? out.refused.data : "", refused))
        fail_msg("\"%s\", expected \"%s\"", out.refused.data, refused);
    CHECK(!strcmp(out.names.len ? out.names.data : "", names));
    config_changes_release(&out);
    config_release(&a), config_release(&b);
}
#define CHECK_MODEL_CHANGES(refused, names, ...)                                                   \
    check_model_changes((const char *const[]){__VA_ARGS__},                                        \
                        sizeof(const char *const[]){__VA_ARGS__} / sizeof(const char *), refused,  \
                        names)

#define SCALING                                                                                    \
    "model.rope_scaling was \"llama3\" (factor 8, low 1, high 4, context 8192), is \"none\" "      \
    "(command line)"

TEST(compare_finds_changes_of_the_model_by_its_shape)
{
    /* the flavor's own values, written out */
    CHECK_MODEL_CHANGES("", "", "model.dim=256", "model.rope_theta=500000", "model.norm_eps=1e-5",
                        "model.rope_scaling=llama3", "model.tie_embeddings=false");
    CHECK_MODEL_CHANGES("model.rope_theta was 500000, is 123 (command line)",
                        "\"model.rope_theta\"", "model.rope_theta=123");
    CHECK_MODEL_CHANGES("model.norm_eps was 1e-05, is 1e-06 (command line); " SCALING,
                        "\"model.norm_eps\", \"model.rope_scaling\"", "model.norm_eps=1e-6",
                        "model.rope_scaling=none");
    CHECK_MODEL_CHANGES("model.sliding_window was 0, is 100 (command line)",
                        "\"model.sliding_window\"", "model.sliding_window=100");
    CHECK_MODEL_CHANGES("model.partial_rotary_factor was 1, is 0.5 (command line); " SCALING,
                        "\"model.rope_scaling\"", "model.partial_rotary_factor=0.5",
                        "model.rope_scaling=none");
    CHECK_MODEL_CHANGES("model.dim was 256, is 512 (command line)", "", "model.dim=512");
    CHECK_MODEL_CHANGES(
        "model.rope_scaling was \"llama3\" (factor 8, low 1, high 4, context 8192), "
        "is \"yarn\" (factor 4, beta 1 to 32, attention factor 2, context 99) "
        "(command line)",
        "\"model.rope_scaling\"", "model.rope_scaling=yarn", "model.rope_factor=4",
        "model.rope_attention_factor=2", "model.rope_original_context=99");
    /* of dynamic RoPE, config.json has the original context only */
    CHECK_MODEL_CHANGES(
        "model.rope_scaling was \"llama3\" (factor 8, low 1, high 4, context 8192), "
        "is \"dynamic\" (factor 4, context 99) (command line)",
        "\"model.rope_scaling\"", "model.rope_scaling=dynamic", "model.rope_factor=4",
        "model.rope_original_context=99", "model.max_context=123");
    CHECK_MODEL_CHANGES(SCALING, "\"model.rope_scaling\"", "model.rope_scaling=none",
                        "model.rope_theta=123", "checkpoint.accept_changed=model.rope_theta");
    CHECK_MODEL_CHANGES("", "", "objective.name=masked",
                        "checkpoint.accept_changed=objective.name");
    CHECK_MODEL_CHANGES("objective.name was \"causal\", is \"masked\" (command line)",
                        "\"objective.name\"", "objective.name=masked");
    CHECK_MODEL_CHANGES("", "", "data.seed=0");
    CHECK_MODEL_CHANGES("", "", "data.seed=7", "checkpoint.exclude_from_loading=dataloader");
}

TEST(the_data_start_over_only_once)
{
    static const char *const settings[] = {"checkpoint.exclude_from_loading=dataloader",
                                           "data.seed=7"};
    struct config a, b;
    struct config_changes out;
    CHECK_STATUS(OK, config_load(&a, NULL, settings, 1));
    CHECK_STATUS(OK, config_load(&b, NULL, settings, 2));
    compare(&a, &b, &out);
    CHECK(out.refused.len && strstr(out.refused.data, "data.seed was"));
    config_changes_release(&out);
    config_release(&a), config_release(&b);
}

TEST(another_number_of_megatrons_samples_is_refused)
{
    static const struct {
        const char *settings[3], *refused;
    } cases[] = {
        {{"training.steps=12"}, "was 80, is 96 (data.samples = 80 keeps the order)"},
        {{"training.global_batch_size=4"}, "was 80, is 40 (data.samples = 80"},
        {{"training.steps=12", "data.samples=80"}, ""},
        {{"training.steps=12", "checkpoint.exclude_from_loading=dataloader"}, ""},
        {{"training.steps=12", "training.global_batch_size=-1"}, ""}, /* unknown */
    };
    const char *settings[] = {"data.order=megatron", "training.global_batch_size=8",
                              "training.steps=10", NULL, NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config a, b;
        struct config_changes out;
        int more = cases[i].settings[1] ? 2 : 1;
        CHECK_STATUS(OK, config_load(&a, NULL, settings, 3));
        for (int k = 0; k < more; k++) settings[3 + k] = cases[i].settings[k];
        CHECK_STATUS(OK, config_load(&b, NULL, settings, 3 + more));
        compare(&a, &b, &out);
        CHECK(!out.refused.len == !cases[i].refused[0]);
        CHECK(!out.refused.len || strstr(out.refused.data, cases[i].refused));
        config_changes_release(&out);
        config_release(&a), config_release(&b);
    }
}

TEST(only_keys_whose_change_can_be_accepted_are_accepted)
{
    struct config c;
    const char *dim = "checkpoint.accept_changed=model.dim";
    CHECK_STATUS(OK, config_load(&c, NULL, &dim, 1));
    CHECK_STATUS(CONFIG, config_check_accepted(&c));
    CHECK_MESSAGE("checkpoint.accept_changed: \"model.dim\": expected one of "
                  "model.sliding_window, model.tie_embeddings, model.rope_theta");
    config_release(&c);
}
