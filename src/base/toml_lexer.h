/* toml_lexer.h -- the position of the TOML parser, white space, strings and scalars; for
 * toml_parse.c only. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "base/toml.h"

struct toml_lexer {
    const char *at, *end, *line_start;
    const char *name; /* of the file; borrowed */
    int line;
};

/* Always fails with DATA; the message has name, line and column. */
enum status toml_lexer_fail(const struct toml_lexer *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static inline int toml_lexer_peek(const struct toml_lexer *l, size_t ahead)
{
    return (size_t)(l->end - l->at) > ahead ? (unsigned char)l->at[ahead] : -1;
}
static inline int toml_lexer_column(const struct toml_lexer *l)
{
    return (int)(l->at - l->line_start) + 1;
}

void toml_lexer_skip_blanks(struct toml_lexer *l); /* spaces and tabs */
/* Skips blanks, an optional comment and the end of the line.  DATA: anything else follows. */
enum status toml_lexer_end_line(struct toml_lexer *l);
/* Skips blanks, newlines and comments, as between the items of an array. */
enum status toml_lexer_skip_lines(struct toml_lexer *l);

/* A quoted string of any of the four kinds; multi-line ones only with `allow_lines`. */
enum status toml_lexer_read_string(struct toml_lexer *l, bool allow_lines, struct text *out);
/* A number, date, time or boolean. */
enum status toml_lexer_read_scalar(struct toml_lexer *l, struct toml *value);
