/* shell_state.h -- what the files of the shell's reader share. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/shell.h"

enum shell_truth { SHELL_NO, SHELL_YES, SHELL_MAYBE };
enum {
    SHELL_DEPTH = 200,
    SHELL_NAMES = 4096,
    SHELL_VALUE = 1 << 16,
    SHELL_SCRIPTS = 8,
    SHELL_STEPS = 400000,
    SHELL_BYTES = 64 << 20
};

struct shell_variable {
    char *name;
    struct shell_words words; /* of a plain one a single word */
    bool array, given, used;
};

/* Where the reader is. */
struct shell_cursor {
    const char *at, *end;
    int line;
    struct shell_words heredocs; /* delimiters whose lines begin behind this one */
};

struct shell_variable *shell_find(const struct shell *s, const char *name);
struct shell_variable *shell_make(struct shell *s, const char *name); /* empty, or as it was */
void shell_note(struct shell *s, int line, const char *text);
/* One step; CONFIG: too many, or nested too deep. */
enum status shell_step(struct shell *s, int line);

/* Words ---------------------------------------------------------------------------------------- */
/* Blanks, continued lines and comments; a newline is left. */
void shell_skip(struct shell_cursor *c);
/* The word here as it is written; len 0: none, but an operator, a newline or the end. */
enum status shell_scan(const struct shell *s, struct shell_cursor *c, const char **raw,
                       size_t *len);
/* What a written word becomes: words without quotes, more than one or none where it splits. */
enum status shell_expand(struct shell *s, const char *raw, size_t len, int line,
                         struct shell_words *out);
/* The same as one word that is never split. */
enum status shell_expand_one(struct shell *s, const char *raw, size_t len, int line,
                             struct text *out);
bool shell_is_name(const char *at, size_t len);
/* Set by who starts the script: not known, and not empty either. */
bool shell_is_of_the_system(const char *name);

/* What a command of these words does; none is started. */
enum status shell_run(struct shell *s, const struct shell_words *w, int line,
                      enum shell_truth *truth);

/* Conditions and sums -------------------------------------------------------------------------- */
enum status shell_test(struct shell *s, const struct shell_words *w, size_t from, size_t to,
                       int line, enum shell_truth *out);
bool shell_match(const char *pattern, const char *word); /* with * and ? */
/* $((...)); a value that is not known makes it so. */
enum status shell_sum(struct shell *s, const char *text, int line, struct text *out);
