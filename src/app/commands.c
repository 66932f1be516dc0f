// SPDX-License-Identifier: Apache-2.0
#include "app/commands.h"
#include "app/app.h"
#include "base/text.h"

#include <string.h>

const struct command commands[] = {
#define COMMAND(name, summary) {#name, summary, command_##name},
#include "app/commands.def"
#undef COMMAND
    {NULL, NULL, NULL},
};

const struct command *commands_find(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (!strcmp(c->name, name)) return c;
    return NULL;
}

const char *commands_suggest(const char *name)
{
    const char *suggestion = NULL;
    size_t distance = 4;
    for (const struct command *c = commands; c->name; c++)
        if (text_is_closer(c->name, name, &distance)) suggestion = c->name;
    return suggestion;
}
