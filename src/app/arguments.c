// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_help(const struct flag *flags, const char *usage)
{
    static const char *const value[] = {
        [FLAG_SWITCH] = "", [FLAG_INT] = " N", [FLAG_REAL] = " X", [FLAG_TEXT] = " TEXT"};
    printf("usage: llamero %s\n", usage);
    if (flags->name) printf("\n");
    for (const struct flag *f = flags; f->name; f++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s", f->name, value[f->kind]);
        printf("  %-24s %s\n", left, f->help);
    }
}

static enum status store(const struct flag *f, const char *value)
{
    char *end = NULL;
    errno = 0;
    if (f->kind == FLAG_TEXT) {
        *(const char **)f->into = value;
        return STATUS_OK;
    }
    if (f->kind == FLAG_INT)
        *(int64_t *)f->into = strtoll(value, &end, 10);
    else
        *(double *)f->into = strtod(value, &end);
    bool finite = f->kind == FLAG_INT || isfinite(*(double *)f->into);
    if (end == value || *end || errno || !finite)
        FAIL(USAGE, "--%s: \"%s\" is not a number", f->name, value);
    return STATUS_OK;
}

static enum status unknown_flag(const struct flag *flags, const char *name)
{
    const char *nearest = NULL;
    size_t best = 4;
    for (const struct flag *f = flags; f->name; f++)
        if (text_is_closer(f->name, name, &best)) nearest = f->name;
    if (nearest) FAIL(USAGE, "unknown flag --%s; did you mean --%s?", name, nearest);
    FAIL(USAGE, "unknown flag --%s; see --help", name);
}

/* Takes argv[*at], and the value after it where the flag needs one. */
static enum status read_flag(const struct flag *flags, int argc, char **argv, int *at)
{
    const char *name = argv[*at] + 2, *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    for (const struct flag *f = flags; f->name; f++) {
        if (strlen(f->name) != len || strncmp(f->name, name, len)) continue;
        if (f->kind == FLAG_SWITCH) {
            if (equals) FAIL(USAGE, "--%s takes no value", f->name);
            *(bool *)f->into = true;
            return STATUS_OK;
        }
        if (!equals && *at + 1 >= argc) FAIL(USAGE, "--%s needs a value", f->name);
        return store(f, equals ? equals + 1 : argv[++*at]);
    }
    char *word = heap_string(name, len);
    enum status st = unknown_flag(flags, word);
    free(word);
    return st;
}

/* section.key=value: a dot before the equals sign, and no slash, so that paths stay words. */
static bool is_setting(const char *word)
{
    const char *equals = strchr(word, '='), *dot = strchr(word, '.');
    const char *slash = strchr(word, '/');
    return equals && dot && dot < equals && dot != word && !(slash && slash < equals);
}

enum status arguments_read(struct arguments *a, const struct flag *flags, const char *usage,
                           int least, int most, int argc, char **argv)
{
    enum { MOST = sizeof a->words / sizeof *a->words };
    bool plain = false; /* after "--" */
    *a = (struct arguments){0};
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (!plain && (!strcmp(word, "--help") || !strcmp(word, "-h"))) {
            print_help(flags, usage);
            a->help = true;
            return STATUS_OK;
        }
        if (!plain && !strcmp(word, "--")) {
            plain = true;
        } else if (!plain && !strncmp(word, "--", 2)) {
            TRY(read_flag(flags, argc, argv, &i));
        } else if (!plain && is_setting(word)) {
            if (a->num_settings == MOST) FAIL(USAGE, "more than %d settings", MOST);
            a->settings[a->num_settings++] = word;
        } else {
            if (a->num_words == MOST) FAIL(USAGE, "more than %d arguments", MOST);
            a->words[a->num_words++] = word;
        }
    }
    if (a->num_words < least || a->num_words > most)
        FAIL(USAGE, "%s: %d arguments where %d to %d are wanted\nusage: llamero %.*s", argv[0],
             a->num_words, least, most, (int)strcspn(usage, "\n"), usage);
    return STATUS_OK;
}
