/* commands.h -- the table of commands. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

struct command {
    const char *name, *summary;
    enum status (*run)(int argc, char **argv); /* argv[0] is the command's name */
};

extern const struct command commands[]; /* ends with a NULL name */

const struct command *commands_find(const char *name); /* or NULL */
/* The known name that is most similar, for "did you mean", or NULL. */
const char *commands_suggest(const char *name);
