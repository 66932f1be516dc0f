// SPDX-License-Identifier: Apache-2.0
#include "app/recipes.h"

#include <string.h>

const struct recipe recipes[] = {
#include "app/recipes.inc" /* written by tools/recipes */
    {0},
};

const struct recipe *recipes_find(const char *name)
{
    const struct recipe *match = NULL;
    size_t len = strlen(name);
    for (const struct recipe *r = recipes; r->name; r++) {
        if (!strcmp(r->name, name)) return r;
        if (!match && !strncmp(r->name, name, len) && r->name[len] == '-' &&
            strcmp(r->name + len, "-mini") != 0)
            match = r;
    }
    return match;
}
