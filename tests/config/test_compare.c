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

TEST(compare_lists_what_may_change_results)
{
    struct config a, b;
    struct text out = {0};
    const char *sources = "[[data.source]]\npath = \"x\"\n";
    char *path = file_join(test_folder(), "a.toml");
    CHECK_STATUS(OK, file_write(path, sources, strlen(sources)));
    CHECK_STATUS(OK, config_load(&a, path, NULL, 0));
    config_compare(&a, &a, &out);
    CHECK(!out.len);
    const char *settings[] = {"training.global_batch_size=64", "data.source.0.weight=0.5",
                              "job.dump_folder=elsewhere",     "metrics.log_freq=7",
                              "data.accept_changed=[\"x\"]",   "comm.init_timeout_seconds=9"};
    CHECK_STATUS(OK, config_load(&b, path, settings, 6));
    config_compare(&a, &b, &out);
    CHECK(strstr(out.data, "training.global_batch_size: -1 -> 64 (continues)\n"));
    CHECK(strstr(out.data, "data.source.0.weight: 1.0 -> 0.5 (continues)"));
    CHECK(!strstr(out.data, "job.") && !strstr(out.data, "metrics."));
    CHECK(!strstr(out.data, "comm.") && !strstr(out.data, "accept_changed"));
    config_release(&a), config_release(&b);
    text_release(&out);
    free(path);
}

TEST(compare_classifies_changes)
{
    static const struct {
        const char *setting, *line;
    } cases[] = {
        {"training.seq_len=64", "training.seq_len: 2048 -> 64 (continues)"},
        {"data.streams=3", "data.streams: 256 -> 3 (continues)"},
        {"data.seed=3", "data.seed: -1 -> 3 (refused)"},
        {"debug.seed=3", "(refused)"},
        {"data.shuffle_window=3", "data.shuffle_window: 64 -> 3 (refused)"},
        {"model.dim=64", "model.dim: 0 -> 64 (refused)"},
        {"model.rope_theta=64", "(continues)"},
        {"model.flavor=8B", "(refused if a weight's shape changes)"},
        {"data.source.0.column=x", "(refused)"},
        {"data.source.0.name=x", "(restarts this source, unless it was read under this name)"},
        {"data.source.1.path=y", "data.source: 1 -> 2 (continues)"},
        {"data.stage.0.at_step=5", "data.stage: 0 -> 1 (continues)"},
    };
    const char *source = "data.source.0.path=x";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config a, b;
        struct text out = {0};
        CHECK_STATUS(OK, config_load(&a, NULL, &source, 1));
        CHECK_STATUS(OK, config_load(&b, NULL, (const char *const[]){source, cases[i].setting}, 2));
        config_compare(&a, &b, &out);
        CHECK(strstr(out.data, cases[i].line) && !strchr(out.data, '\n'));
        text_release(&out);
        config_release(&a), config_release(&b);
    }
}
