// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/recipes.h"
#include "base/closest.h"

#include <stdio.h>
#include <string.h>

static const char usage[] = "init [NAME]\n\n"
                            "Prints a recipe to start from; without NAME, lists the recipes.\n"
                            "`llamero config explain KEY` describes a key.\n"
                            "    llamero init tiny > tiny.toml";

enum status command_init(int argc, char **argv)
{
    const struct flag flags[] = {{0}};
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){usage, flags, 0, 1}, argc, argv));
    if (a.help) return STATUS_OK;
    const struct recipe *found = a.num_words ? recipes_find(a.words[0]) : NULL;
    if (found) {
        printf("%s", found->toml);
        return STATUS_OK;
    }
    struct closest closest = closest_to(a.num_words ? a.words[0] : "");
    for (const struct recipe *r = recipes; r->name; r++) {
        closest_offer(&closest, r->name);
        if (!a.num_words)
            printf("%-20s %.*s\n", r->name, (int)strcspn(r->toml + 2, "\n"), r->toml + 2);
    }
    const char *suggestion = closest.name;
    if (!a.num_words) return STATUS_OK;
    FAIL(USAGE, "unknown recipe \"%s\"%s%s%s; `llamero init` lists them", a.words[0],
         suggestion ? "; did you mean " : "", suggestion ? suggestion : "", suggestion ? "?" : "");
}
