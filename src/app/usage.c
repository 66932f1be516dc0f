// SPDX-License-Identifier: Apache-2.0
#include "app/usage.h"

#include "base/closest.h"

#include <stdio.h>
#include <string.h>

const struct synopsis *usage_next(const struct usage *u, const struct synopsis *after,
                                  const char *verb)
{
    const struct synopsis *s = after ? after + 1 : u->synopses;
    for (; s->verbs || s->items[0].kind; s++) {
        BUG_IF(s == &u->synopses[USAGE_SYNOPSES - 1] || s->items[USAGE_ITEMS - 1].kind);
        if (!s->verbs || !verb || text_is_choice(s->verbs, verb, strlen(verb))) return s;
    }
    return NULL;
}

static bool is_argument(const struct usage_item *i) { return i->kind > ITEM_SETTINGS; }

const struct usage_item *usage_argument(const struct synopsis *s, int index)
{
    for (const struct usage_item *i = s->items; i->kind; i++) {
        if (!is_argument(i)) continue;
        if (!index-- || i->is_repeated) return i;
    }
    return NULL;
}

void usage_limits(const struct usage *u, const char *verb, int *least, int *most)
{
    *least = USAGE_UNLIMITED, *most = 0;
    for (const struct synopsis *s = NULL; (s = usage_next(u, s, verb));) {
        int required = 0, taken = 0;
        for (const struct usage_item *i = s->items; i->kind; i++) {
            if (!is_argument(i)) continue;
            required += !i->is_optional;
            taken = i->is_repeated ? USAGE_UNLIMITED : taken + 1;
        }
        if (required < *least) *least = required;
        if (taken > *most) *most = taken;
    }
}

/* Whether an item of any synopsis is of this kind and, if not NULL, has this among its names. */
static bool has_item(const struct usage *u, enum usage_kind kind, const char *name)
{
    for (const struct synopsis *s = NULL; (s = usage_next(u, s, NULL));)
        for (const struct usage_item *i = s->items; i->kind; i++)
            if (i->kind == kind && (!name || text_is_choice(i->name, name, strlen(name))))
                return true;
    return false;
}

bool usage_takes_settings(const struct usage *u) { return has_item(u, ITEM_SETTINGS, NULL); }
bool usage_takes_config(const struct usage *u) { return has_item(u, ITEM_FILE, "CONFIG"); }

/* What other programs, and people in a hurry, call a subcommand. */
static const struct closest_synonym synonyms[] = {
    {"analyze", "stats"},     {"check", "verify"}, {"compare", "diff"},     {"count", "stats"},
    {"detokenize", "decode"}, {"info", "show"},    {"inspect", "show"},     {"learn", "train"},
    {"list", "ls"},           {"print", "show"},   {"statistics", "stats"}, {"tokenize", "encode"},
    {"validate", "verify"},   {"view", "show"},
};

bool usage_has_subcommands(const struct usage *u) { return u->synopses[0].verbs != NULL; }

void usage_list_subcommands(const struct usage *u, struct text *list)
{
    for (const struct synopsis *s = NULL; (s = usage_next(u, s, NULL)) && s->verbs;)
        text_addf(list, "%s%s", list->len ? "|" : "", s->verbs);
}

enum status usage_check_subcommand(const struct usage *u, const char *word)
{
    struct text list = {0}, words = {0};
    enum status st = STATUS_OK;
    usage_list_subcommands(u, &list);
    if (!list.len || (word && text_is_choice(list.data, word, strlen(word)))) goto out;
    text_add_choices(&words, list.data);
    if (!word) FAIL_OUT(USAGE, "%s: expected a subcommand: %s", u->command, words.data);
    struct closest c = closest_to(word);
    int len = (int)closest_offer_list(&c, list.data);
    const char *known = closest_find_synonym(synonyms, sizeof synonyms / sizeof *synonyms, word);
    if (known && text_is_choice(list.data, known, strlen(known)))
        c.name = known, len = (int)strlen(known);
    if (len)
        FAIL_OUT(USAGE, "%s: unknown subcommand \"%s\"; did you mean \"%.*s\"?", u->command, word,
                 len, c.name);
    FAIL_OUT(USAGE, "%s: unknown subcommand \"%s\"; expected %s", u->command, word, words.data);
out:
    text_release(&list), text_release(&words);
    return st;
}

void usage_add_synopsis(const struct usage *u, const struct synopsis *s, struct text *out)
{
    text_addf(out, "%s%s%s", u->command, s->verbs ? " " : "", s->verbs ? s->verbs : "");
    for (const struct usage_item *i = s->items; i->kind; i++)
        if (i->shown)
            text_addf(out, " %s", i->shown);
        else
            text_addf(out, " %s%s%s%s", i->is_optional ? "[" : "", i->name,
                      i->is_repeated ? "..." : "", i->is_optional ? "]" : "");
}

void usage_add_names(const struct synopsis *s, int count, struct text *out)
{
    for (int i = 0; i < count; i++) {
        const char *between = i + 1 < count ? ", " : " and ";
        text_addf(out, "%s%s", i ? between : "", usage_argument(s, i)->name);
    }
}
