/* synopsis.h -- the synopses that begin a command's usage (flags.h): subcommands, and the names of
 * arguments. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>

enum { SYNOPSIS_NAME_BYTES = 64 };

/* The next synopsis of the usage, after "llamero ", or NULL. */
const char *synopsis_next(const char *line);
/* What follows the command's name. */
const char *synopsis_arguments(const char *line);
/* Finds the word that describes argument `index` (from 0) in what synopsis_arguments returned:
 * flags, their values and settings do not count, and "..." repeats a word. */
bool synopsis_find_name(const char *arguments, int index, char name[SYNOPSIS_NAME_BYTES]);
/* The first synopsis from `line` on that `verb`, the first argument, may begin, or NULL. */
const char *synopsis_find(const char *line, const char *verb, const char **arguments);

/* Appends them: "ls|verify|show". */
void synopsis_list_subcommands(const char *usage, struct text *list);
bool synopsis_has_subcommands(const char *usage);
/* USAGE: the usage has subcommands, and `word` (NULL: missing) is not one of them; the message
 * suggests the closest. */
enum status synopsis_check_subcommand(const char *usage, const char *command, const char *word);
/* How many words the synopses that `verb` begins take, itself among them; at most `most`. */
int synopsis_count_words(const char *usage, const char *verb, int most);
/* Appends the names of the first `count` arguments after `verb` (NULL: none): "SRC and DST". */
void synopsis_add_names(const char *usage, const char *verb, int count, struct text *out);
