/* flags.h -- what a command accepts: tables that parse its arguments and generate --help, its man
 * page, docs/commands.md and shell completion. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/usage.h"

#include <stdbool.h>
#include <stddef.h>

enum flag_kind {
    FLAG_SWITCH,
    FLAG_INT,
    FLAG_REAL,
    FLAG_TEXT,
    FLAG_FILE,   /* text that completes as a file */
    FLAG_FOLDER, /* text that completes as a folder */
    FLAG_CHOICE, /* one of the words that begin the help: "pmix|pmi2: how ranks start" */
    FLAG_LIST,   /* text; may be repeated */
    FLAG_FILES,  /* files; may be repeated */
    FLAG_KINDS
};

/* The values of a flag that may be repeated. */
struct flag_list {
    const char *items[64];
    int count;
};

/* --name, --name VALUE or --name=VALUE.  Underscores may replace dashes, and a switch may be
 * followed by Python's True or False.  A table of flags ends with a NULL name. */
struct flag {
    const char *name; /* without the dashes */
    enum flag_kind kind;
    void *into; /* bool, int64_t, double, const char * or struct flag_list; holds the default */
    const char *help;
};

struct arguments_spec {
    const struct usage *usage;
    const struct flag *flags;
};

/* --color, which every command takes, and which may also stand before it. */
#define FLAG_COLOR_HELP                                                                            \
    "auto|always|never: colors on terminals, unless NO_COLOR is set or TERM is dumb (auto); "      \
    "always; never"

/* The word that stands for the flag's value in --help: "FILE"; "" for a switch. */
static inline const char *flag_value_name(const struct flag *f)
{
    static const char *const names[FLAG_KINDS] = {
        [FLAG_SWITCH] = "",     [FLAG_INT] = "N",     [FLAG_REAL] = "X",
        [FLAG_TEXT] = "TEXT",   [FLAG_FILE] = "FILE", [FLAG_FOLDER] = "FOLDER",
        [FLAG_CHOICE] = "WORD", [FLAG_LIST] = "TEXT", [FLAG_FILES] = "FILE"};
    return names[f->kind];
}
