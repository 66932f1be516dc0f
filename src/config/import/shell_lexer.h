/* shell_lexer.h -- finds the words of a shell script. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/shell.h"

struct shell_cursor {
    const char *at, *end;
    int line;
    struct shell_words heredocs; /* delimiters of the here-documents that start after this line */
};

/* A word of the source, with its quotes. */
struct shell_token {
    const char *at;
    size_t len;
};

/* Skips blanks, continued lines and comments, but not newlines. */
void shell_lexer_skip_blanks(struct shell_cursor *c);
/* Reads the next word; its length is 0 before an operator, a newline or the end.  CONFIG: a quote
 * or bracket is not closed. */
enum status shell_lexer_next(const struct shell *s, struct shell_cursor *c,
                             struct shell_token *out);
/* Returns the end of the character at `at`, or of the quotes or the $ expression that starts there;
 * NULL: not closed. */
const char *shell_lexer_past(const char *at, const char *end);
