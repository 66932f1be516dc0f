// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/recipes.h"
#include "base/closest.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

static const struct usage usage = {
    "init",
    {{NULL, {USAGE_OPTIONAL(RECIPE, "NAME")}}},
    "Prints a recipe to start from; without NAME, lists the recipes.  NAME may be the\n"
    "beginning of one, up to a hyphen.\n"
    "`llamero config explain KEY` describes a key.\n"
    "    llamero init tiny > tiny.toml",
};

static enum status print_recipe(const char *name)
{
    struct text others = {0};
    struct closest closest = closest_to(name);
    enum status st = STATUS_OK;
    const struct recipe *found = recipes_find(name, &others);
    for (const struct recipe *r = recipes; r->name; r++) closest_offer(&closest, r->name);
    if (!found && others.len)
        FAIL_OUT(USAGE, "\"%s\" is the beginning of several recipes: %s", name, others.data);
    if (!found)
        FAIL_OUT(USAGE, "unknown recipe \"%s\"%s%s%s; `llamero init` lists them", name,
                 closest.name ? "; did you mean " : "", closest.name ? closest.name : "",
                 closest.name ? "?" : "");
    if (strcmp(found->name, name) != 0) log_line(LOG_INFO, "%s: printing %s", name, found->name);
    printf("%s", found->toml);
out:
    text_release(&others);
    return st;
}

enum status command_init(int argc, char **argv)
{
    const struct flag flags[] = {{0}};
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    if (!a.num_words) {
        for (const struct recipe *r = recipes; r->name; r++)
            printf("%-20s %.*s\n", r->name, (int)strcspn(r->toml + 2, "\n"), r->toml + 2);
        return STATUS_OK;
    }
    return print_recipe(a.words[0]);
}
