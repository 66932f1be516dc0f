/* app.h -- one function a command, and how a command reads its arguments. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* argv[0] is the command's own name.  Results go to stdout, all else through the log. */
#define COMMAND(name, summary) enum status command_##name(int argc, char **argv);
#include "app/commands.def"
#undef COMMAND

enum flag_kind { FLAG_SWITCH, FLAG_INT, FLAG_REAL, FLAG_TEXT };

/* --name, --name VALUE or --name=VALUE; a table of these ends with a NULL name. */
struct flag {
    const char *name; /* without the dashes */
    enum flag_kind kind;
    void *into; /* bool, int64_t, double or const char *; holds the default */
    const char *help;
};

/* What is not a flag: arguments, and section.key=value settings for the configuration. */
struct arguments {
    const char *words[64];
    int num_words;
    const char *settings[64];
    int num_settings;
    bool help; /* --help was asked for and is printed: return STATUS_OK */
};

/* `usage` is the line after "usage: llamero ", then a blank line and a paragraph.  USAGE: an
 * unknown flag (the nearest is named), a value that does not parse, or not least..most words. */
enum status arguments_read(struct arguments *a, const struct flag *flags, const char *usage,
                           int least, int most, int argc, char **argv);
