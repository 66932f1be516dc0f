/* book.h -- what a configuration keeps about itself: the parsed text that owns its strings, and
 * where each value was set; internal to config/. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "base/toml.h"
#include "config/refusals.h"
#include "config/sections.h"

/* A value that was set explicitly. */
struct value_origin {
    const struct option *row;
    char *where; /* "run.toml:3", "command line"; owned */
};

struct config_book {
    char *path;
    struct toml **trees; /* own the strings of the configuration */
    size_t num_trees;
    struct value_origin *origins;
    size_t num_origins;
    bool uses_fork;             /* a key of the older fork was used */
    struct text without_effect; /* keys of other programs that were set */
    struct refusals refusals;
};

void book_release(struct config_book *b);

/* Keeps a tree, whose strings the configuration borrows; NULL: nothing. */
void book_keep_tree(struct config_book *b, struct toml *tree);

/* Notes that a value was set in a line of a file; line 0: by `file`, such as "command line". */
void book_note_origin(struct config_book *b, const struct option *row, const char *file, int line);
/* The origin of this value; "default" if nothing set it. */
const char *book_origin(const struct config_book *b, const struct option *row);
bool book_is_default(const struct config_book *b, const char *key); /* of an existing key */
