/* shell.h -- state of a shell script that is followed without running it: variables, arguments and
 * the training command.
 *
 * shell_parse.h follows assignments, arrays, parameter expansion, $((...)), if, case, for, [ ],
 * [[ ]], eval, bash -c and scripts in the same folder.  The output of a command, $(...), is unknown
 * and stays in values as $(name...); files are assumed to exist.  Unlike in bash, variables that
 * are set by bash -c, by a script that bash runs, in ( ) or in the first command of a pipeline stay
 * set after it.
 * Limits   See the constants below. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    SHELL_MAX_DEPTH = 200, /* nesting of statements and expansions */
    SHELL_MAX_VARIABLES = 4096,
    SHELL_MAX_VALUE = 1 << 16,  /* bytes or words */
    SHELL_MAX_SCRIPTS = 8,      /* nesting of scripts */
    SHELL_MAX_STEPS = 400000,   /* statements, expansions and conditions */
    SHELL_MAX_BYTES = 64 << 20, /* of all expansions */
};

/* Result of a condition or command.  SHELL_UNKNOWN: known only when the script runs. */
enum shell_result { SHELL_FALSE, SHELL_TRUE, SHELL_UNKNOWN };

struct shell_words {
    char **items; /* owned */
    size_t count;
};
void shell_words_add(struct shell_words *w, const char *bytes, size_t len);
void shell_words_release(struct shell_words *w);

struct shell_variable {
    char *name;
    struct shell_words words; /* one word unless it is an array */
    bool is_array;
    bool is_given; /* by shell_give */
    bool is_used;
};

struct shell_note {
    int line;
    char *text;
};

/* Reads a script that another one runs.  MISSING: not found. */
struct shell_files {
    enum status (*open)(const void *context, const char *path, struct text *bytes);
    const void *context;
};

struct shell {
    const char *file; /* borrowed */
    struct shell_files files;
    struct shell_variable *variables;
    size_t num_variables;
    struct shell_words arguments; /* $1, $2, ... */
    struct shell_words command;   /* arguments of the training program; empty: not found */
    struct shell_words launcher;  /* the words before that program, such as torchrun's */
    char *accelerated;            /* the program, if `accelerate launch` starts it; else NULL */
    int command_line;
    struct shell_note *notes; /* what was not followed */
    size_t num_notes;
    struct text last_echo;
    enum shell_end { SHELL_RUNS, SHELL_RETURNS, SHELL_EXITS } end; /* of the current script */
    struct text exit_place;        /* "file:line" of the last exit or return; empty: none */
    enum shell_result exit_result; /* of that: whether its status is 0 */
    enum shell_result last_result; /* of the last command that ran, for $?; eval, source and bash
                                      count as success unless they exit */
    enum shell_jump { SHELL_NO_JUMP, SHELL_BREAK, SHELL_CONTINUE } jump;
    int depth, loops, scripts; /* current nesting */
    long steps_left;
    size_t expanded_bytes;
};

void shell_init(struct shell *s, const char *file, struct shell_files files);
void shell_release(struct shell *s);

void shell_set(struct shell *s, const char *name, const char *value);
/* Sets a variable as the user's environment does: the script overrides it, but not with an unknown
 * value.  Returns false if `name` is not a valid name. */
bool shell_give(struct shell *s, const char *name, const char *value);
void shell_unset(struct shell *s, const char *name);
const char *shell_get(const struct shell *s, const char *name); /* NULL: not set */
struct shell_variable *shell_find(const struct shell *s, const char *name);
struct shell_variable *shell_find_or_add(struct shell *s, const char *name);
/* Returns a given variable that was never read, or NULL, and a similar name or NULL. */
const char *shell_unused(const struct shell *s, const char **similar);

void shell_add_note(struct shell *s, int line, const char *text);
/* CONFIG: more than SHELL_MAX_STEPS, or SHELL_MAX_VARIABLES. */
enum status shell_count_step(struct shell *s, int line);

bool shell_is_name(const char *at, size_t len);
/* Whether the value contains parts that are known only when the script runs. */
bool shell_is_unknown(const char *value);
/* Whether the system or Slurm sets this variable: unknown, but not empty. */
bool shell_is_system_variable(const char *name);
