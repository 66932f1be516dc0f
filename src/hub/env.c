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

enum status env_read_bool(const char *name, bool *value)
{
    static const char *const words[][2] = {
        {"1", "0"}, {"ON", "OFF"}, {"YES", "NO"}, {"TRUE", "FALSE"}};
    const char *text = env_find(name);
    *value = false;
    if (!text) return STATUS_OK;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        *value = !strcasecmp(text, words[i][0]);
        if (*value || !strcasecmp(text, words[i][1])) return STATUS_OK;
    }
    FAIL(CONFIG, "environment variable %s=%s: expected 1, ON, YES or TRUE, or 0, OFF, NO or FALSE",
         name, text);
}
