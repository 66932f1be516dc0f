// SPDX-License-Identifier: Apache-2.0
#include "app/recipes.h"

#include <stdbool.h>
#include <string.h>

const struct recipe recipes[] = {
#include "app/recipes.inc" /* written by tools/recipes */
    {0},
};

static bool is_scaled_down(const char *name)
{
    size_t len = strlen(name);
    return len > 5 && !strcmp(name + len - 5, "-mini");
}

const struct recipe *recipes_find(const char *name, struct text *others)
{
    const struct recipe *match = NULL;
    size_t len = strlen(name), count = 0;
    text_clear(others);
    for (const struct recipe *r = recipes; r->name; r++) {
        if (!strcmp(r->name, name)) {
            text_clear(others);
            return r;
        }
        if (strncmp(r->name, name, len) != 0 || r->name[len] != '-' || is_scaled_down(r->name))
            continue;
        match = r;
        text_addf(others, "%s%s", count++ ? ", " : "", r->name);
    }
    if (count == 1) text_clear(others);
    return count == 1 ? match : NULL;
}
