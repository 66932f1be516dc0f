// SPDX-License-Identifier: Apache-2.0
#include "app/arguments.h"
#include "app/completion.h"
#include "app/flag_modes.h"
#include "app/manual.h"
#include "base/closest.h"
#include "base/color.h"
#include "base/text.h"
#include "base/toml.h"
#include "config/closest_key.h"
#include "config/sections.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status store_value(const struct flag *f, const char *value)
{
    bool is_folder = f->kind == FLAG_KIND_FOLDER;
    if (!*value && (is_folder || f->kind == FLAG_KIND_FILE || f->kind == FLAG_KIND_FILES))
        FAIL(USAGE, "--%s: expected a %s, got an empty string", f->name,
             is_folder ? "folder" : "file");
    if (f->kind == FLAG_KIND_TEXT || f->kind == FLAG_KIND_FILE || f->kind == FLAG_KIND_FOLDER) {
        *(const char **)f->into = value;
        return STATUS_OK;
    }
    if (f->kind == FLAG_KIND_LIST || f->kind == FLAG_KIND_FILES) {
        struct flag_list *list = f->into;
        if (list->count == (int)(sizeof list->items / sizeof *list->items))
            FAIL(USAGE, "--%s: at most %d are supported", f->name, list->count);
        list->items[list->count++] = value;
        return STATUS_OK;
    }
    const struct option o = flags_option(f);
    struct toml *tree;
    enum status st = option_set_text(&o, f->into, value, &tree);
    toml_free(tree);
    if (st) FAIL(USAGE, "--%s: \"%s\": %s", f->name, value, status_message());
    return STATUS_OK;
}

/* What other programs call a flag. */
static const struct closest_synonym flag_synonyms[] = {
    {"max-new-tokens", "max-tokens"},
    {"n-predict", "max-tokens"},
    {"num-tokens", "max-tokens"},
    {"world-size", "ranks"},
    {"num-ranks", "ranks"},
    {"nproc-per-node", "ranks-per-node"},
    {"nproc-per-node", "ranks"},
    {"ntasks-per-node", "ranks-per-node"},
    {"cpus-per-task", "cpus-per-rank"},
    {"nnodes", "nodes"},
    {"walltime", "time"},
    {"format", "to"},
    {"output-format", "to"},
    {"output", "out"},
    {"output-prefix", "output"},
    {"out", "output"},
    {"input", "prompt"},
    {"text", "prompt"},
    {"num-workers", "workers"},
    {"num-proc", "workers"},
    {"threads", "workers"},
    {"text-column", "column"},
    {"json-keys", "column"},
    {"overwrite", "force"},
    {"tokenizer-model", "tokenizer"},
    {"tasks", "task"},
    {"metric", "key"},
    {"max-seq-len", "seq-len"},
    {"seq-length", "seq-len"},
};

static bool has_flag(const struct flag *flags, const char *name)
{
    for (; name && flags->name; flags++)
        if (!strcmp(flags->name, name)) return true;
    return false;
}

/* With these flags other programs resume a run; train resumes without one. */
static bool asks_to_resume(const struct arguments_spec *spec, const char *name)
{
    return !strcmp(spec->usage->command, "train") &&
           (!strcmp(name, "resume") || !strcmp(name, "continue") || !strcmp(name, "restart"));
}

static bool names_config(const char *name)
{
    return !strcmp(name, "c") || !strcmp(name, "config") || !strcmp(name, "config-file") ||
           !strcmp(name, "config_file");
}

/* `dashes` as the user wrote them. */
static enum status unknown_flag(const struct arguments_spec *spec, const char *dashes,
                                const char *name)
{
    const char *known = NULL;
    struct closest c = closest_to(name);
    char key[128];
    if (asks_to_resume(spec, name))
        FAIL(USAGE,
             "unknown flag %s%s: train resumes by itself at the newest checkpoint of "
             "job.dump_folder; repeat the command without the flag",
             dashes, name);
    if (usage_takes_config(spec->usage) && names_config(name))
        FAIL(USAGE, "unknown flag %s%s: the configuration is an argument, without a flag", dashes,
             name);
    for (size_t i = 0; i < sizeof flag_synonyms / sizeof *flag_synonyms && !known; i++) {
        known = closest_find_synonym(&flag_synonyms[i], 1, name);
        if (!has_flag(spec->flags, known)) known = NULL;
    }
    for (const struct flag *f = spec->flags; f->name; f++) closest_offer(&c, f->name);
    if (known) c.name = known;
    if (c.name) FAIL(USAGE, "unknown flag %s%s; did you mean --%s?", dashes, name, c.name);
    char *option = heap_strdup(name);
    for (char *at = option; *at; at++)
        if (*at == '-') *at = '_';
    bool is_key = usage_takes_settings(spec->usage) && closest_key_exact(option, key, sizeof key);
    free(option);
    if (is_key) FAIL(USAGE, "unknown flag %s%s; did you mean %s=VALUE?", dashes, name, key);
    FAIL(USAGE, "unknown flag %s%s; `llamero %s --help` lists the flags", dashes, name,
         spec->usage->command);
}

/* Whether the word is the flag's name.  Underscores may replace dashes, as in other programs'
 * scripts. */
static bool is_name(const char *name, const char *word, size_t len)
{
    if (strlen(name) != len) return false;
    for (size_t i = 0; i < len; i++)
        if (name[i] != (word[i] == '_' ? '-' : word[i])) return false;
    return true;
}

/* Reads Python's True or False after a switch; returns false for other words. */
static bool read_truth(const char *word, bool *into)
{
    if (strcmp(word, "True") && strcmp(word, "False")) return false;
    *into = *word == 'T';
    return true;
}

/* "-o" is --output, as in compilers, of commands that have it. */
static bool is_short_output(const struct arguments_spec *spec, const char *word)
{
    return !strcmp(word, "-o") && has_flag(spec->flags, "output");
}

/* Parses the flag argv[*at], and its value if that is the next argument; sets its bit in *given. */
static enum status read_flag(const struct arguments_spec *spec, int argc, char **argv, int *at,
                             uint64_t *given)
{
    const char *name = is_short_output(spec, argv[*at]) ? "output" : argv[*at] + 2;
    const char *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    for (const struct flag *f = spec->flags; f->name; f++) {
        if (!is_name(f->name, name, len)) continue;
        *given |= (uint64_t)1 << (f - spec->flags);
        if (f->kind == FLAG_KIND_SWITCH) {
            if (equals) FAIL(USAGE, "--%s does not take a value", f->name);
            *(bool *)f->into = true;
            if (*at + 1 < argc && read_truth(argv[*at + 1], f->into)) ++*at;
            if (!*(bool *)f->into) *given &= ~((uint64_t)1 << (f - spec->flags));
            return STATUS_OK;
        }
        if (!equals && *at + 1 >= argc)
            FAIL(USAGE, "--%s requires a value: --%s %s", f->name, f->name, f->value);
        return store_value(f, equals ? equals + 1 : argv[++*at]);
    }
    char *word = heap_string(name, len);
    enum status st = unknown_flag(spec, "--", word);
    free(word);
    return st;
}

/* "--color WHEN", which every command takes. */
static enum status read_color(int argc, char **argv, int *at, bool *found)
{
    int when = COLOR_AUTO;
    const struct flag flags[] = {FLAG_COLOR(&when), {0}};
    *found = is_name("color", argv[*at] + 2, strcspn(argv[*at] + 2, "="));
    if (!*found) return STATUS_OK;
    TRY(read_flag(&(struct arguments_spec){.flags = flags}, argc, argv, at, &(uint64_t){0}));
    color_set((enum color_when)when);
    return STATUS_OK;
}

enum status arguments_read_color(int argc, char **argv, int *num_read)
{
    bool found = true;
    int i = 0;
    while (i < argc && !strncmp(argv[i], "--", 2)) {
        int at = i;
        TRY(read_color(argc, argv, &at, &found));
        if (!found) break;
        i = at + 1;
    }
    *num_read = i;
    return STATUS_OK;
}

/* section.key=value: a dot and no slash before the equals sign, so that paths remain words. */
static bool is_setting(const char *word)
{
    const char *equals = strchr(word, '='), *dot = strchr(word, '.');
    const char *slash = strchr(word, '/');
    return equals && dot && dot < equals && dot != word && !(slash && slash < equals);
}

/* --section.key, as in torchtitan: no flag of ours has a dot. */
static bool is_dashed_setting(const char *word)
{
    const char *dot = strchr(word, '.'), *equals = strchr(word, '=');
    return !strncmp(word, "--", 2) && dot && dot != word + 2 && !(equals && equals < dot);
}

static enum status add_setting(struct arguments *a, const char *setting)
{
    const int most = sizeof a->settings / sizeof *a->settings;
    if (a->num_settings == most) FAIL(USAGE, "too many settings: at most %d are supported", most);
    a->settings[a->num_settings++] = setting;
    return STATUS_OK;
}

/* "--section.key=value", "--section.key value", "--section.key", which is true, or, as in
 * torchtitan, "--section.no-key", which is false unless there is a key no_key.  Dashes in keys are
 * underscores.  *at moves to the value. */
static enum status read_dashed_setting(struct arguments *a, int argc, char **argv, int *at)
{
    const char *word = argv[*at] + 2, *value = "true";
    size_t n = strcspn(word, "=");
    bool last = *at + 1 >= argc || !strncmp(argv[*at + 1], "--", 2);
    if (word[n] && !memchr(word, '-', n)) return add_setting(a, word);
    char *key = heap_string(word, n), *name = strchr(key, '.') + 1;
    for (char *c = key; *c; c++)
        if (*c == '-') *c = '_';
    const struct config_section *section;
    enum status st = STATUS_OK;
    bool is_negated = !strncmp(strchr(word, '.') + 1, "no-", 3) && !config_find(key, &section);
    const struct option *row = config_find(key, &section);
    if (!word[n] && last && row && row->kind != OPTION_BOOL && row->kind != OPTION_AUTO)
        FAIL_OUT(USAGE, "--%s requires a value: --%s VALUE", word, word);
    if (word[n])
        value = word + n + 1;
    else if (is_negated)
        memmove(name, name + 3, strlen(name + 3) + 1), value = "false";
    else if (!last)
        value = argv[++*at];
    char *to = a->joined + a->num_joined;
    size_t left = sizeof a->joined - a->num_joined;
    int len = snprintf(to, left, "%s=%s", key, value);
    if (len < 0 || (size_t)len >= left)
        FAIL_OUT(USAGE,
                 "--%.*s: settings written with dashes are limited to %zu bytes; write %s=VALUE",
                 (int)n, word, sizeof a->joined, key);
    a->num_joined += (size_t)len + 1;
    TRY_OUT(add_setting(a, to));
out:
    free(key);
    return st;
}

/* A word too many may be a flag or a setting that was not read as one: "-q", "steps=5". */
static enum status check_word(const struct arguments_spec *spec, const char *word)
{
    const char *equals = strchr(word, '='), *command = spec->usage->command;
    char buffer[128];
    if (word[0] == '-' && word[1]) return unknown_flag(spec, "-", word + 1);
    if (!usage_takes_settings(spec->usage)) return STATUS_OK;
    const struct config_section *section;
    if (!equals && config_find(word, &section))
        FAIL(USAGE, "%s: %s requires a value: %s=VALUE", command, word, word);
    if (!equals) return STATUS_OK;
    char *key = heap_string(word, (size_t)(equals - word));
    bool found = closest_key_find(key, buffer, sizeof buffer) != NULL;
    free(key);
    if (found)
        FAIL(USAGE, "%s: unknown setting %s; did you mean %s%s?", command, word, buffer, equals);
    FAIL(USAGE, "%s: unknown setting %s; expected section.key=value", command, word);
}

/* Names the arguments that are expected.  `verb`: the subcommand, or "". */
static enum status fail_missing(const struct usage *u, const char *verb, int got, int least,
                                int most)
{
    const struct synopsis *s = usage_next(u, NULL, verb);
    struct text names = {0}, line = {0};
    enum status st = STATUS_OK;
    usage_add_names(s, least, &names);
    usage_add_synopsis(u, s, &line);
    FAIL_OUT(USAGE, "%s%s%s: expected %s%d argument%s (%s), got %d\nusage: llamero %s", u->command,
             *verb ? " " : "", verb, most > least ? "at least " : "", least, least == 1 ? "" : "s",
             names.data, got, line.data);
out:
    text_release(&names), text_release(&line);
    return st;
}

static enum status check_count(const struct arguments *a, const struct arguments_spec *spec)
{
    const struct usage *u = spec->usage;
    int num_verbs = usage_has_subcommands(u), got = a->num_words - num_verbs, least, most;
    const char *verb = num_verbs ? a->words[0] : "";
    usage_limits(u, verb, &least, &most);
    if (got < least) return fail_missing(u, verb, got, least, most);
    if (got <= most) return STATUS_OK;
    for (int i = 0; i < a->num_words; i++) {
        bool is_extra = i >= num_verbs + most || a->words[i][0] == '-' || strchr(a->words[i], '=');
        if (is_extra) TRY(check_word(spec, a->words[i]));
    }
    struct text line = {0};
    usage_add_synopsis(u, usage_next(u, NULL, verb), &line);
    enum status st = FAILURE(USAGE, "%s: unexpected argument \"%s\"\nusage: llamero %s", u->command,
                             a->words[num_verbs + most], line.data);
    text_release(&line);
    return st;
}

/* As of a variable of a script that is not set. */
static enum status check_paths(const struct arguments *a, const struct usage *u)
{
    int num_verbs = usage_has_subcommands(u);
    const struct synopsis *s = usage_next(u, NULL, num_verbs ? a->words[0] : "");
    for (int i = num_verbs; i < a->num_words; i++) {
        const struct usage_item *item = usage_argument(s, i - num_verbs);
        if (item && !a->words[i][0] && (item->kind == ITEM_FILE || item->kind == ITEM_FOLDER))
            FAIL(USAGE, "%s: %s is an empty string", u->command, item->name);
    }
    return STATUS_OK;
}

/* Flags whose help begins with other subcommands than the one given are errors. */
static enum status check_subcommand_flags(const struct arguments *a,
                                          const struct arguments_spec *spec)
{
    struct text all = {0}, before = {0};
    enum status st = STATUS_OK;
    usage_list_subcommands(spec->usage, &all);
    text_addf(&before, "%s ", spec->usage->command);
    if (all.len)
        st = flag_modes_check(
            &(struct flag_modes){.before = before.data, .all = all.data, .mode = a->words[0]},
            spec->flags, a->given);
    text_release(&all), text_release(&before);
    return st;
}

/* torchtitan's way to name the configuration, which would be ignored. */
static enum status check_config_file(const struct arguments *a, const struct usage *u)
{
    static const char key[] = "job.config_file=";
    bool has_subcommand = a->num_words && usage_has_subcommands(u);
    for (int i = 0; i < a->num_settings && usage_takes_config(u); i++)
        if (!strncmp(a->settings[i], key, sizeof key - 1))
            FAIL(USAGE,
                 "%s: job.config_file is not a setting: the configuration is an argument, "
                 "as in `llamero %s%s%s %s`",
                 u->command, u->command, has_subcommand ? " " : "",
                 has_subcommand ? a->words[0] : "", a->settings[i] + sizeof key - 1);
    return STATUS_OK;
}

enum status arguments_read(struct arguments *a, const struct arguments_spec *spec, int argc,
                           char **argv)
{
    enum { MAX_WORDS = sizeof a->words / sizeof *a->words };
    bool plain = false; /* after "--" */
    *a = (struct arguments){0};
    if (argc > 1 && !strcmp(argv[1], "--complete")) {
        completion_print(spec, argc - 2, argv + 2);
        a->help = true;
        return STATUS_OK;
    }
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (!plain && (!strncmp(word, "--help", 6) || !strcmp(word, "-h"))) {
            a->help = true;
            return manual_print(spec, a->given, word);
        }
        if (!plain && !strcmp(word, "--")) {
            plain = true;
        } else if (!plain && is_dashed_setting(word)) {
            TRY(read_dashed_setting(a, argc, argv, &i));
        } else if (!plain && !strncmp(word, "--", 2)) {
            bool is_color;
            TRY(read_color(argc, argv, &i, &is_color));
            if (!is_color) TRY(read_flag(spec, argc, argv, &i, &a->given));
        } else if (!plain && is_short_output(spec, word)) {
            TRY(read_flag(spec, argc, argv, &i, &a->given));
        } else if (!plain && is_setting(word)) {
            TRY(add_setting(a, word));
        } else {
            if (a->num_words == MAX_WORDS)
                FAIL(USAGE, "too many arguments: at most %d are supported", MAX_WORDS);
            a->words[a->num_words++] = word;
        }
    }
    const struct usage *u = spec->usage;
    bool handles_settings =
        usage_takes_settings(u) || !strcmp(u->command, "runs"); /* with its own words */
    if (a->num_settings && !handles_settings)
        FAIL(USAGE,
             "%s: \"%s\" looks like a setting, which this command does not take; put a path or a "
             "text of this form after --",
             u->command, a->settings[0]);
    TRY(check_config_file(a, u));
    TRY(usage_check_subcommand(u, a->num_words ? a->words[0] : NULL));
    TRY(check_count(a, spec));
    TRY(check_paths(a, u));
    return check_subcommand_flags(a, spec);
}

bool arguments_have(const struct arguments *a, const struct flag *flags, const char *name)
{
    for (int i = 0; flags[i].name; i++)
        if (!strcmp(flags[i].name, name)) return a->given >> i & 1;
    return false;
}
