// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"
#include "app/app.h"
#include "app/arguments.h"
#include "app/config_diff.h"
#include "app/import.h"

#include <stdio.h>
#include <string.h>

static void print_key(void *context, const char *section, const struct option *row)
{
    bool is_array = strchr(section, '.');
    char name[64];
    (void)context;
    snprintf(name, sizeof name, is_array ? "[[%.58s]]" : "[%.60s]", section);
    printf("%-24s %s\n", name, row->name);
}

static enum status show(const struct arguments *a)
{
    struct config c;
    struct text toml = {0};
    enum status st =
        config_load(&c, a->num_words > 1 ? a->words[1] : NULL, a->settings, a->num_settings);
    if (!st) {
        config_write(&c, true, &toml);
        fputs(toml.data, stdout);
    }
    text_release(&toml);
    config_release(&c);
    return st;
}

static enum status explain(const struct arguments *a)
{
    struct text out = {0};
    enum status st = STATUS_OK;
    if (a->num_words == 1) config_for_each_option(print_key, NULL);
    for (int i = 1; i < a->num_words && !st; i++) st = config_explain(a->words[i], &out);
    if (!st && out.len) fputs(out.data, stdout);
    text_release(&out);
    return st;
}

static enum status document(bool man)
{
    struct text page = {0};
    (man ? config_write_man : config_document)(&page);
    fputs(page.data, stdout);
    text_release(&page);
    return STATUS_OK;
}

static const struct usage usage = {
    "config",
    {{"show", {USAGE_OPTIONAL(FILE, "CONFIG"), USAGE_SETTINGS}},
     {"diff", {USAGE_ONE(FILE, "A"), USAGE_ONE(FILE, "B"), USAGE_FLAGS("[--json]")}},
     {"explain", {USAGE_ANY(KEY, "KEY")}},
     {"import", {USAGE_SOME(FILE, "FILE.yaml|SCRIPT.sh")}},
     {"document", {USAGE_FLAGS("[--man]")}}},
    "show prints every effective value and its origin: a file's line, the command line, the\n"
    "flavor, or the default.  diff prints the effective values in which two configurations\n"
    "differ, as \"key: A's -> B's\"; A and B are files, runs or checkpoints, and the exit code\n"
    "is 0 whether they differ or not.  explain describes a key or a section.  import converts\n"
    "NxD Training's YAML, and scripts that start Megatron-LM or `accelerate launch`, to TOML\n"
    "(see `llamero config import --help`).  document prints docs/options.md.",
};

enum status command_config(int argc, char **argv)
{
    bool man = false, json = false;
    const struct flag flags[] = {
        {"man", FLAG_SWITCH, &man, "document: print llamero.toml(5) instead"},
        {"json", FLAG_SWITCH, &json, "diff: print one JSON object"},
        {0},
    };
    struct arguments a;
    if (argc > 1 && !strcmp(argv[1], "import")) return import_run(argc - 2, argv + 2);
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    if (a.num_settings && strcmp(a.words[0], "show"))
        FAIL(USAGE, "config %s: unexpected setting %s; only config show takes settings", a.words[0],
             a.settings[0]);
    if (!strcmp(a.words[0], "show")) return show(&a);
    if (!strcmp(a.words[0], "diff")) return config_diff_print(a.words[1], a.words[2], json);
    if (!strcmp(a.words[0], "explain")) return explain(&a);
    return document(man);
}
