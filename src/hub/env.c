// SPDX-License-Identifier: Apache-2.0
#include "hub/env.h"

#include <stddef.h>
#include <stdlib.h>
#include <strings.h>

const char *env_find(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

bool env_is_true(const char *name)
{
    static const char *const yes[] = {"1", "ON", "YES", "TRUE"};
    const char *value = env_find(name);
    for (size_t i = 0; value && i < sizeof yes / sizeof *yes; i++)
        if (!strcasecmp(value, yes[i])) return true;
    return false;
}
