// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/way.h"

#include <stddef.h>
#include <string.h>

static const struct way ways[] = {
    {"usual", 8, 8, 2}, {"near", 8, 8, 1},      {"far", 8, 8, 4},
    {"wide", 4, 16, 2}, {"far wide", 4, 16, 8},
};

const struct way *way_at(int i) { return i < (int)(sizeof ways / sizeof *ways) ? &ways[i] : NULL; }

const struct way *way_named(const char *name)
{
    for (int i = 0; way_at(i); i++)
        if (!strcmp(ways[i].name, name)) return &ways[i];
    return NULL;
}
