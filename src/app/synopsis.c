// SPDX-License-Identifier: Apache-2.0
#include "app/synopsis.h"

#include "base/closest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool synopsis_find_name(const char *line, int index, char name[SYNOPSIS_NAME_BYTES])
{
    bool is_value = false;
    int at = -1;
    *name = 0;
    for (size_t len; *line && *line != '\n'; line += len, line += *line == ' ') {
        len = strcspn(line, " \n");
        size_t open = strspn(line, "[("), word = strcspn(line + open, " \n.])=");
        const char *after = line + open + word;
        if (!strncmp(line + open, "--", 2)) {
            is_value = !memchr(line, ']', len);
        } else if (!strncmp(line, "...", 3)) {
            if (*name) return true;
        } else if (is_value || !isalpha((unsigned char)line[open])) {
            is_value = false;
        } else if (memchr(line, '=', len)) {
            return false;
        } else {
            snprintf(name, SYNOPSIS_NAME_BYTES, "%.*s", (int)word, line + open);
            if (++at == index || !strncmp(after, "...", 3)) return true;
        }
    }
    return false;
}

const char *synopsis_next(const char *line)
{
    line += strcspn(line, "\n");
    return !strncmp(line, "\n       llamero ", 16) ? line + 16 : NULL;
}

const char *synopsis_arguments(const char *line)
{
    line += strcspn(line, " \n");
    return line + (*line == ' ');
}

const char *synopsis_find(const char *line, const char *verb, const char **arguments)
{
    for (; line; line = synopsis_next(line)) {
        char first[SYNOPSIS_NAME_BYTES];
        *arguments = synopsis_arguments(line);
        synopsis_find_name(*arguments, 0, first);
        if (!islower((unsigned char)*first) || text_is_choice(first, verb, strlen(verb)))
            return line;
    }
    return NULL;
}

/* What other programs, and people in a hurry, call a subcommand. */
static const struct closest_synonym synonyms[] = {
    {"analyze", "stats"},     {"check", "verify"}, {"compare", "diff"},     {"count", "stats"},
    {"detokenize", "decode"}, {"info", "show"},    {"inspect", "show"},     {"learn", "train"},
    {"list", "ls"},           {"print", "show"},   {"statistics", "stats"}, {"tokenize", "encode"},
    {"validate", "verify"},   {"view", "show"},
};

void synopsis_list_subcommands(const char *usage, struct text *list)
{
    for (const char *line = usage; line; line = synopsis_next(line)) {
        char name[SYNOPSIS_NAME_BYTES];
        synopsis_find_name(synopsis_arguments(line), 0, name);
        if (islower((unsigned char)*name) &&
            !(list->len && text_is_choice(list->data, name, strlen(name))))
            text_addf(list, "%s%s", list->len ? "|" : "", name);
    }
}

bool synopsis_has_subcommands(const char *usage)
{
    struct text list = {0};
    synopsis_list_subcommands(usage, &list);
    bool has = list.len > 0;
    text_release(&list);
    return has;
}

static void describe(const char *list, struct text *out)
{
    for (const char *at = list, *next; *at; at = next + (*next == '|')) {
        next = at + strcspn(at, "|");
        text_addf(out, "%s%.*s", at == list ? "" : *next ? ", " : " or ", (int)(next - at), at);
    }
}

enum status synopsis_check_subcommand(const char *usage, const char *command, const char *word)
{
    struct text list = {0}, words = {0};
    enum status st = STATUS_OK;
    synopsis_list_subcommands(usage, &list);
    if (!list.len || (word && text_is_choice(list.data, word, strlen(word)))) goto out;
    describe(list.data, &words);
    if (!word) FAIL_OUT(USAGE, "%s: expected a subcommand: %s", command, words.data);
    struct closest c = closest_to(word);
    int len = (int)closest_offer_list(&c, list.data);
    const char *known = closest_find_synonym(synonyms, sizeof synonyms / sizeof *synonyms, word);
    if (known && text_is_choice(list.data, known, strlen(known)))
        c.name = known, len = (int)strlen(known);
    if (len)
        FAIL_OUT(USAGE, "%s: unknown subcommand \"%s\"; did you mean \"%.*s\"?", command, word, len,
                 c.name);
    FAIL_OUT(USAGE, "%s: unknown subcommand \"%s\"; expected %s", command, word, words.data);
out:
    text_release(&list), text_release(&words);
    return st;
}

int synopsis_count_words(const char *usage, const char *verb, int most)
{
    const char *arguments, *line = synopsis_find(usage, verb, &arguments);
    int count = 1;
    for (; line; line = synopsis_find(synopsis_next(line), verb, &arguments)) {
        char name[SYNOPSIS_NAME_BYTES];
        while (count < most && synopsis_find_name(arguments, count, name)) count++;
    }
    return count;
}

void synopsis_add_names(const char *usage, const char *verb, int count, struct text *out)
{
    const char *arguments;
    const char *line = synopsis_find(usage, verb ? verb : "", &arguments);
    char name[SYNOPSIS_NAME_BYTES];
    int first = verb != NULL;
    for (int i = first; line && i < first + count; i++) {
        if (!synopsis_find_name(arguments, i, name)) return;
        name[strcspn(name, "[")] = 0;
        text_addf(out, "%s%s", i == first ? "" : i + 1 < first + count ? ", " : " and ", name);
    }
}
