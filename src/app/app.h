/* app.h -- the commands: one function each, in the file of the same name. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

/* argv[0] is the command's own name.  Results go to stdout, everything else through the log. */
#define COMMAND(name, summary) enum status command_##name(int argc, char **argv);
#include "app/commands.def"
#undef COMMAND
