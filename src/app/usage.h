/* usage.h -- what a command takes besides its flags: subcommands, arguments and settings.  --help
 * prints it, and arguments.c and completion.c read it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>

/* From ITEM_FILE on: an argument, by what completes it. */
enum usage_kind {
    ITEM_END,
    ITEM_FLAGS, /* only printed: the flags that matter most */
    ITEM_SETTINGS,
    ITEM_FILE,
    ITEM_FOLDER,
    ITEM_KEY,
    ITEM_RECIPE,
    ITEM_TEXT, /* which nothing completes */
};

struct usage_item {
    enum usage_kind kind;
    const char *name; /* "CONFIG" */
    bool is_optional, is_repeated;
    const char *shown; /* NULL: NAME, [NAME], NAME... or [NAME...] */
};

// clang-format off
#define USAGE_ONE(kind, name) {ITEM_##kind, name, false, false, NULL}
#define USAGE_OPTIONAL(kind, name) {ITEM_##kind, name, true, false, NULL}
#define USAGE_SOME(kind, name) {ITEM_##kind, name, false, true, NULL}
#define USAGE_ANY(kind, name) {ITEM_##kind, name, true, true, NULL}
#define USAGE_FLAGS(text) {ITEM_FLAGS, NULL, false, false, text}
#define USAGE_SETTINGS {ITEM_SETTINGS, NULL, false, false, "[section.key=value ...]"}
// clang-format on

enum { USAGE_ITEMS = 6, USAGE_SYNOPSES = 6 };

/* One line of the usage. */
struct synopsis {
    const char *verbs; /* subcommands that no other line has, "ls|verify"; NULL: of no subcommand */
    struct usage_item items[USAGE_ITEMS]; /* ends with an empty one */
};

struct usage {
    const char *command;
    struct synopsis synopses[USAGE_SYNOPSES]; /* ends with an empty one */
    const char *description;                  /* paragraphs, between blank lines */
};

/* The first synopsis behind `after` (NULL: of all) for the subcommand `verb` (NULL: any), or NULL.
 * A command without subcommands ignores `verb`. */
const struct synopsis *usage_next(const struct usage *u, const struct synopsis *after,
                                  const char *verb);
/* The argument `index` (from 0, behind the subcommand), or NULL. */
const struct usage_item *usage_argument(const struct synopsis *s, int index);
/* How many arguments the subcommand `verb` takes. */
enum { USAGE_UNLIMITED = 1 << 30 };
void usage_limits(const struct usage *u, const char *verb, int *least, int *most);
bool usage_takes_settings(const struct usage *u);
/* Whether an argument is a configuration file. */
bool usage_takes_config(const struct usage *u);

bool usage_has_subcommands(const struct usage *u);
/* Appends them: "ls|verify|show". */
void usage_list_subcommands(const struct usage *u, struct text *list);
/* USAGE: the command has subcommands, and `word` (NULL: missing) is not one of them; the message
 * suggests the closest. */
enum status usage_check_subcommand(const struct usage *u, const char *word);

/* Appends "checkpoint ls|verify|show FOLDER". */
void usage_add_synopsis(const struct usage *u, const struct synopsis *s, struct text *out);
/* Appends the names of the first `count` arguments: "SRC and DST". */
void usage_add_names(const struct synopsis *s, int count, struct text *out);
