/* flags.h -- what a command accepts: tables that parse its arguments and generate --help, its man
 * page, docs/commands.md and shell completion. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/usage.h"
#include "base/option.h"

#include <stdbool.h>
#include <stddef.h>

enum flag_kind {
    FLAG_KIND_SWITCH,
    FLAG_KIND_INT,
    FLAG_KIND_REAL,
    FLAG_KIND_TEXT,
    FLAG_KIND_FILE,
    FLAG_KIND_FOLDER,
    FLAG_KIND_CHOICE,
    FLAG_KIND_LIST,
    FLAG_KIND_FILES,
};

/* What a flag takes: the second column of a table of flags. */
// clang-format off
#define FLAG_SWITCH            FLAG_KIND_SWITCH, 0, 0, ""
#define FLAG_INT(least, most)  FLAG_KIND_INT, least, most, "N" /* a whole number within bounds */
#define FLAG_REAL(least, most) FLAG_KIND_REAL, least, most, "X"
#define FLAG_TEXT              FLAG_KIND_TEXT, 0, 0, "TEXT"
#define FLAG_FILE              FLAG_KIND_FILE, 0, 0, "FILE" /* text that completes as a file */
#define FLAG_FOLDER            FLAG_KIND_FOLDER, 0, 0, "FOLDER"
#define FLAG_CHOICE(words)     FLAG_KIND_CHOICE, 0, 0, words /* one of "a|b|c", as its index */
#define FLAG_LIST              FLAG_KIND_LIST, 0, 0, "TEXT" /* may be repeated */
#define FLAG_FILES             FLAG_KIND_FILES, 0, 0, "FILE"
// clang-format on
/* The upper bound of numbers without one: up to it a double is exact. */
#define FLAG_UNLIMITED 0x1p53

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
    double least, most; /* inclusive */
    const char *value;  /* stands for it in --help: "FILE", the words of a choice, "" of a switch */
    /* bool, int64_t, double, const char *, int (a choice's index) or struct flag_list.  Holds the
     * default; a number out of bounds: none. */
    void *into;
    const char *help; /* without bounds and default: flags_describe adds them */
};

struct arguments_spec {
    const struct usage *usage;
    const struct flag *flags;
};

/* --color, which every command takes, and which may also stand before it. */
#define FLAG_COLOR(into)                                                                           \
    {                                                                                              \
        "color", FLAG_CHOICE("auto|always|never"), into,                                           \
            "colors on terminals, unless NO_COLOR is set or TERM is dumb (auto); always; never"    \
    }

/* The row of a number or a choice as an option, which checks a value and says what is allowed. */
struct option flags_option(const struct flag *f);
/* Appends the help with the bounds and the default: "threads" becomes "threads (1 to 64, default
 * 16)", and "tokens (default: all)" becomes "tokens (default 0: all)".  is_given: `into` no longer
 * holds the default. */
void flags_describe(const struct flag *f, bool is_given, struct text *out);
