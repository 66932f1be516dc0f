// SPDX-License-Identifier: Apache-2.0
#include "app/completion.h"
#include "app/commands.h"
#include "app/recipes.h"
#include "base/text.h"
#include "config/config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints prefix + word if that begins with `start`. */
static void offer(const char *start, const char *prefix, const char *word, const char *description)
{
    size_t len = strlen(prefix), n = strlen(start);
    if (strncmp(start, prefix, n < len ? n : len) != 0) return;
    if (n > len && strncmp(start + len, word, n - len) != 0) return;
    printf("%s%s\t%s\n", prefix, word, description);
}

/* Offers each of the words "a|b". */
static void offer_words(const char *start, const char *prefix, const char *words)
{
    for (const char *at = words; *at; at += *at == '|') {
        size_t len = strcspn(at, "|");
        char *word = heap_string(at, len);
        offer(start, prefix, word, "");
        free(word);
        at += len;
    }
}

/* What is to be completed: a key, or the value of one. */
struct key_search {
    const char *start;  /* the whole word */
    const char *prefix; /* "--" or "" */
    const char *key;    /* whose values to offer, or NULL */
    size_t key_len;
    const char *head; /* in front of each value: "training.steps=", or "" for a word of its own */
    const char *tail; /* after each key: "=" */
    const char *last; /* the section offered last */
};

static void offer_values(const struct key_search *s, const struct option *row)
{
    static const char *const booleans = "true|false", *const three = "true|false|auto";
    if (row->kind == OPTION_BOOL) offer_words(s->start, s->head, booleans);
    if (row->kind == OPTION_AUTO) offer_words(s->start, s->head, three);
    if (row->kind == OPTION_WORD) offer_words(s->start, s->head, row->unit);
    if (row->kind == OPTION_TEXT && !strncmp(row->unit, "path", 4)) puts(":files");
}

static void each_option(void *context, const char *section, const struct option *row)
{
    struct key_search *s = context;
    struct text name = {0};
    text_addf(&name, "%s.%s", section, row->name);
    if (s->key) {
        if (name.len == s->key_len && !strncmp(name.data, s->key, s->key_len)) offer_values(s, row);
    } else if (strchr(s->start, '.')) {
        text_adds(&name, s->tail);
        offer(s->start, s->prefix, name.data, row->help);
    } else if (!s->last || strcmp(s->last, section) != 0) {
        text_clear(&name);
        text_addf(&name, "%s.", section);
        offer(s->start, s->prefix, name.data, "section of keys");
        s->last = section;
    }
    text_release(&name);
}

static void offer_keys(const char *start, const char *prefix, const char *tail)
{
    config_for_each_option(each_option,
                           &(struct key_search){.start = start, .prefix = prefix, .tail = tail});
}

/* Offers values of the key at `key`: after "KEY=" in the same word if `head` is not empty. */
static void offer_key_values(const char *start, const char *key, const char *head)
{
    struct key_search s = {
        .start = start, .key = key, .key_len = strcspn(key, "="), .head = head, .prefix = ""};
    config_for_each_option(each_option, &s);
}

static const struct flag color_flag = FLAG_COLOR(NULL);

static void offer_flag_values(const struct flag *f, const char *start, const char *head)
{
    if (f->kind == FLAG_KIND_FILE || f->kind == FLAG_KIND_FILES) puts(":files");
    if (f->kind == FLAG_KIND_FOLDER) puts(":folders");
    if (f->kind == FLAG_KIND_CHOICE) offer_words(start, head, f->value);
}

static const struct flag *find_flag(const struct flag *flags, const char *word)
{
    size_t len = strcspn(word, "=");
    if (strncmp(word, "--", 2)) return NULL;
    for (const struct flag *f = flags; f->name; f++)
        if (strlen(f->name) == len - 2 && !strncmp(f->name, word + 2, len - 2)) return f;
    return len == 7 && !strncmp(word, "--color", 7) ? &color_flag : NULL;
}

static void offer_recipes(const char *start)
{
    for (const struct recipe *r = recipes; r->name; r++) {
        char *summary = heap_string(r->toml + 2, strcspn(r->toml + 2, "\n"));
        offer(start, "", r->name, summary);
        free(summary);
    }
}

static bool takes_settings(const struct usage *u, const char *verb)
{
    for (const struct synopsis *s = NULL; (s = usage_next(u, s, verb));)
        for (const struct usage_item *i = s->items; i->kind; i++)
            if (i->kind == ITEM_SETTINGS) return true;
    return false;
}

/* Offers what may stand as argument `index` (from 0); `verb` is the first. */
static void offer_arguments(const struct usage *u, int index, const char *verb, const char *start)
{
    bool paths = false, folders = false;
    int first = usage_has_subcommands(u);
    for (const struct synopsis *s = u->synopses; !index && s->verbs; s++)
        offer_words(start, "", s->verbs);
    if (index < first) return;
    for (const struct synopsis *s = NULL; (s = usage_next(u, s, verb));) {
        const struct usage_item *i = usage_argument(s, index - first);
        if (!i) continue;
        if (i->kind == ITEM_KEY) offer_keys(start, "", "");
        if (i->kind == ITEM_RECIPE) offer_recipes(start);
        folders |= i->kind == ITEM_FOLDER;
        paths |= i->kind == ITEM_FILE;
    }
    if (paths || folders) puts(paths ? ":files" : ":folders");
}

void completion_print_colors(const char *start) { offer_words(start, "", color_flag.value); }

void completion_print_commands(const char *start)
{
    if (!strncmp(start, "--color=", 8)) offer_words(start, "--color=", color_flag.value);
    if (*start == '-') {
        offer(start, "--", "help", "list the commands");
        offer(start, "--", "version", "print the version, with --verbose the build");
        offer(start, "--", "color", color_flag.help);
        return;
    }
    for (const struct command *c = commands; c->name; c++) offer(start, "", c->name, c->summary);
}

static void offer_flag(const struct flag *f, const char *start)
{
    struct text description = {0};
    flags_describe(f, false, &description);
    offer(start, "--", f->name, description.data);
    text_release(&description);
}

/* A word that begins with "--". */
static void offer_flags(const struct arguments_spec *spec, bool settings, const char *start)
{
    const struct flag *f = find_flag(spec->flags, start);
    const char *equals = strchr(start, '=');
    char *head = equals ? heap_string(start, (size_t)(equals + 1 - start)) : NULL;
    if (head && f)
        offer_flag_values(f, start, head);
    else if (head && settings)
        offer_key_values(start, start + 2, head);
    if (!head) {
        for (f = spec->flags; f->name; f++) offer_flag(f, start);
        offer(start, "--", "help", "describe the command");
        offer(start, "--", "color", color_flag.help);
        if (settings) offer_keys(start, "--", "=");
    }
    free(head);
}

void completion_print(const struct arguments_spec *spec, int num_words, char *const *words)
{
    const char *start = num_words ? words[num_words - 1] : "", *verb = "", *value_of = NULL;
    const char *equals = strchr(start, '=');
    bool plain = false;
    int index = 0;
    for (int i = 0; i < num_words - 1; i++) {
        const char *word = words[i];
        const struct flag *f = plain ? NULL : find_flag(spec->flags, word);
        bool flag = !plain && !strncmp(word, "--", 2);
        bool valued = f ? f->kind != FLAG_KIND_SWITCH : flag && strchr(word, '.');
        if (value_of) {
            value_of = NULL;
        } else if (flag) {
            plain = !word[2];
            if (valued && !strchr(word, '=')) value_of = word;
        } else if (plain || !strchr(word, '=')) {
            if (!index++) verb = word;
        }
    }
    bool settings = !plain && takes_settings(spec->usage, verb);
    const struct flag *f = value_of ? find_flag(spec->flags, value_of) : NULL;
    if (f) {
        offer_flag_values(f, start, "");
    } else if (value_of) {
        offer_key_values(start, value_of + 2, "");
    } else if (!plain && *start == '-') {
        offer_flags(spec, settings, start);
    } else if (equals && settings) {
        char *head = heap_string(start, (size_t)(equals + 1 - start));
        offer_key_values(start, start, head);
        free(head);
    } else {
        if (settings && *start && !strchr(start, '/')) offer_keys(start, "", "=");
        offer_arguments(spec->usage, index, verb, start);
    }
}
