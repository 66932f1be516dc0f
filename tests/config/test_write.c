// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "config/config.h"

TEST(written_configuration_reads_back_unchanged)
{
    static const char *const settings[] = {"optimizer.lr=3.3333333333333331e-05",
                                           "job.description=a \"quoted\" \\ word",
                                           "model.tie_embeddings=true",
                                           "checkpoint.exclude_from_loading=[\"a\", \"b,c\"]",
                                           "data.streams=7",
                                           "training.max_norm=0",
                                           "objective.mask_token=<|mask|>",
                                           "debug.seed=1152921504606846977"};
    struct config c, again;
    struct text first = {0}, second = {0};
    char *path = file_join(test_folder(), "config.toml");
    const char *source = "[[data.source]]\npath = \"x\\ty\"\nweight = 0.44\n";
    CHECK_STATUS(OK, file_write(path, source, strlen(source)));
    CHECK_STATUS(OK, config_load(&c, path, settings, 8));
    config_write(&c, false, &first);
    CHECK_STATUS(OK, file_write(path, first.data, first.len));
    CHECK_STATUS(OK, config_load(&again, path, NULL, 0));
    config_write(&again, false, &second);
    CHECK(first.len == second.len && !memcmp(first.data, second.data, first.len));
    CHECK(again.data.sources[0].weight == 0.44 && again.model.tie_embeddings == YES);
    CHECK(again.debug.seed == 1152921504606846977LL);
    config_release(&c), config_release(&again);
    text_release(&first), text_release(&second);
    free(path);
}

TEST(explain_accepts_keys_sections_and_older_spellings)
{
    static const char *const keys[] = {"optimizer.lr", "training.batch_size", "optimizer",
                                       "weight_decay", "compile.enable",      "data.source.path"};
    struct text t = {0};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        text_clear(&t);
        CHECK_STATUS(OK, config_explain(keys[i], &t));
        CHECK(t.len > 30);
    }
    CHECK_STATUS(CONFIG, config_explain("optimizer.lrr", &t));
    CHECK_MESSAGE("did you mean optimizer.lr?");
    text_release(&t);
}

TEST(options_page_has_every_section)
{
    struct text t = {0};
    config_document(&t);
    CHECK(strstr(t.data, "## [training]") && strstr(t.data, "## [[data.source]]"));
    CHECK(strstr(t.data, "| `mask_probability` | `0.3` |"));
    text_release(&t);
}

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
                              "job.dump_folder=elsewhere", "metrics.log_freq=7"};
    CHECK_STATUS(OK, config_load(&b, path, settings, 4));
    config_compare(&a, &b, &out);
    CHECK(strstr(out.data, "training.global_batch_size: -1 -> 64, data.source.0.weight: 1"));
    CHECK(!strstr(out.data, "job.") && !strstr(out.data, "metrics."));
    config_release(&a), config_release(&b);
    text_release(&out);
    free(path);
}
