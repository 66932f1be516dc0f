// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/recipes.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum status command_init(int argc, char **argv)
{
    const struct flag flags[] = {{0}};
    struct arguments a;
    TRY(arguments_read(&a, flags,
                       "init [NAME]\n\nPrints a recipe to start from; without NAME, the names.\n"
                       "    llamero init tiny > tiny.toml",
                       0, 1, argc, argv));
    if (a.help) return STATUS_OK;
    const char *nearest = NULL;
    size_t best = 6;
    for (const struct recipe *r = recipes; r->name; r++) {
        if (!a.num_words) {
            printf("%-12s %s\n", r->name, r->about);
        } else if (!strcmp(r->name, a.words[0])) {
            printf("# %s: %s.\n# `llamero config explain KEY` tells what a key does.\n\n%s",
                   r->name, r->about, r->toml);
            return STATUS_OK;
        } else if (text_distance(r->name, a.words[0]) < best) {
            best = text_distance(r->name, a.words[0]);
            nearest = r->name;
        }
    }
    if (!a.num_words) return STATUS_OK;
    FAIL(USAGE, "no recipe \"%s\"%s%s%s; `llamero init` lists them", a.words[0],
         nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}
