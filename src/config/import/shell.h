/* shell.h -- shell scripts that start a training: read, never run.
 *
 * Followed are assignments, arrays, ${VAR:-default} and its kin, $((...)), if, case, for over
 * words, [ ], [[ ]], eval, bash -c and scripts beside this one.  What a command would print,
 * $(...), is not known, and stays in a value as $(name...); files are taken to be there.
 * Limits   Nesting 200 deep, values of 64 KiB, 8 scripts within each other; and in all steps, and
 *          64 MiB that words become. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

struct shell_words {
    char **items; /* owned */
    size_t count;
};
void shell_words_add(struct shell_words *w, const char *bytes, size_t len);
void shell_words_release(struct shell_words *w);

struct shell_note {
    int line;
    char *text;
};

/* Gives the bytes of a script that another one starts; MISSING: it is not there. */
struct shell_files {
    enum status (*open)(const void *context, const char *path, struct text *bytes);
    const void *context;
};

struct shell {
    const char *file; /* borrowed */
    struct shell_files files;
    struct shell_variable *variables;
    size_t num_variables;
    struct shell_words arguments; /* $1 and on */
    struct shell_words command;   /* the training's, from its .py on; none: not found */
    struct shell_words launcher;  /* the words before it: torchrun's */
    int command_line;
    struct shell_note *notes; /* what was not followed */
    size_t num_notes;
    struct text said; /* the last echo */
    int stopped_at;   /* line of an exit; 0: none */
    bool stopped;     /* exit was met */
    enum shell_flow { SHELL_GOES_ON, SHELL_BREAK, SHELL_CONTINUE } broken;
    int depth, loops, scripts;
    long left;    /* steps */
    size_t bytes; /* that words became */
};

void shell_init(struct shell *s, const char *file, struct shell_files files);
void shell_release(struct shell *s);
void shell_set(struct shell *s, const char *name, const char *value);
/* As the one who starts it does: what only running would tell does not replace it.  false: no name
 * of a variable. */
bool shell_give(struct shell *s, const char *name, const char *value);
/* A variable that was given and never read, or NULL; *nearest: what its name looks like, or NULL.
 */
const char *shell_unused(const struct shell *s, const char **nearest);
const char *shell_get(const struct shell *s, const char *name); /* NULL: not set */

/* CONFIG: what is not shell, or beyond the limits; file:line and what. */
enum status shell_read(struct shell *s, const char *bytes, size_t len, int line);
/* Does it hold what only running would tell? */
bool shell_is_unknown(const char *value);
