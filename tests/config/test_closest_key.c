// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/closest_key.h"
#include "config/sections.h"

static const struct {
    const char *key, *suggestion; /* NULL: none */
} rows[] = {
    {"training.stps", "training.steps"},
    {"trainig.steps", "training.steps"},
    {"trainig.stps", "training.steps"},
    {"training.lr", "optimizer.lr"},
    {"steps", "training.steps"},
    {"stps", "training.steps"},
    {"learning_rate", "optimizer.lr"},
    {"model.hidden_size", "model.dim"},
    {"parallelism.tp", "parallelism.tensor_parallel_degree"},
    {"data.source.0.pth", "data.source.0.path"},
    {"data.source.pth", "data.source.path"},
    {"debug.enable", NULL}, /* of several sections */
    {"training.foo", NULL},
    {"model.abcdef", NULL},
    {"optimizer.xyzzy", NULL},
    {"qqqqqqqqqqqqq.zzzzzzzzzzzzzzzzz", NULL},
    {"data.source.0.zzzzzz", NULL},
    {".", NULL},
    {"", NULL},
};

TEST(closest_key_suggests_what_was_meant_or_nothing)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char buffer[128];
        const char *got = closest_key_find(rows[i].key, buffer, sizeof buffer);
        if ((!got) != (!rows[i].suggestion) || (got && strcmp(got, rows[i].suggestion)))
            fail_msg("%s: suggested %s", rows[i].key, got ? got : "nothing");
    }
}

TEST(synonyms_name_keys_that_exist)
{
    static const char *const keys[] = {
#define SYNONYM(word, key) key,
#include "config/synonyms.def"
#undef SYNONYM
    };
    const struct config_section *section;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!config_find(keys[i], &section)) fail_msg("synonyms.def: unknown key %s", keys[i]);
}

TEST(misspelled_keys_of_ignored_sections_are_found)
{
    static const struct {
        const char *key, *known;
    } cases[] = {
        {"comm.train_timeout_secnds", "comm.train_timeout_seconds"},
        {"comm.trace_buf_sizes", "comm.trace_buf_size"},
        {"compile.enabel", "compile.enable"},
        {"compile.fantasy", NULL},
        {"fault_tolerance.enabled", "fault_tolerance.enable"},
        {"quantize.linear.float8.recipe_nam", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buffer[128];
        const char *known = closest_key_misspelled(cases[i].key, buffer, sizeof buffer);
        CHECK(cases[i].known ? known && !strcmp(known, cases[i].known) : !known);
    }
}
