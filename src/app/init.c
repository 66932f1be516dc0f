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
                       "init [NAME]\n\nPrints a recipe to start from; without NAME, the names. "
                       "`llamero config explain KEY` tells\nwhat a key does.\n"
                       "    llamero init tiny > tiny.toml",
                       0, 1, argc, argv));
    if (a.help) return STATUS_OK;
    const struct recipe *found = a.num_words ? recipe_find(a.words[0]) : NULL;
    if (found) {
        printf("%s", found->toml);
        return STATUS_OK;
    }
    const char *nearest = NULL;
    size_t best = 6;
    for (const struct recipe *r = recipes; r->name; r++) {
        if (!a.num_words) {
            printf("%-20s %.*s\n", r->name, (int)strcspn(r->toml + 2, "\n"), r->toml + 2);
        } else if (text_is_closer(r->name, a.words[0], &best)) {
            nearest = r->name;
        }
    }
    if (!a.num_words) return STATUS_OK;
    FAIL(USAGE, "no recipe \"%s\"%s%s%s; `llamero init` lists them", a.words[0],
         nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}
